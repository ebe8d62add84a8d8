"""Names from a manifest → files below one folder, by handles. Nothing else in this part opens a name it was told.

A name may come from another machine, and a script may swap a folder for a link at any moment: every component is
opened by itself, without following a link, so that neither leads out of the folder.
"""

from __future__ import annotations

import os

from ..remote.shared.tree import FOLDER, NOFOLLOW, WINDOWS, Folders, empty_folder, join, open_up

_LONGEST = 255  # bytes of a name, on every file system in use


def refusal(path: str) -> str | None:
    """Why this is no name of a file below a folder; None if it is one."""
    if "\0" in path:
        return "the name contains a NUL character"
    try:
        longest = max(map(len, os.fsencode(path).split(b"/")))
    except UnicodeEncodeError:
        return "the name contains an invalid character"
    if longest > _LONGEST:
        return "the name is too long for a file"
    if path.startswith("/"):
        return "the name is absolute"
    parts = path.split("/")
    if ".." in parts:
        return "the name leads outside the folder"
    if "" in parts or "." in parts:
        return "the name is not normalized"
    if WINDOWS and any(letter in path for letter in '\\:<>"|?*'):
        return "the name is not valid on Windows"
    return None


class Beneath(Folders):
    """The folders below one folder, which can be made on the way."""

    def __init__(self, folder: str, parent: int | None = None) -> None:
        # Not the base's: with a parent the name is looked up there, and not in the current folder.
        self._open = [("", os.open(folder, FOLDER | NOFOLLOW, dir_fd=parent))]

    def __enter__(self) -> Beneath:
        return self

    def make(self, folder: str, mode: int = 0o777) -> int:
        """The handle of a folder, made if it is not there; OSError if a link or a file is in its place."""
        try:
            return self.open(folder)
        except FileNotFoundError:
            pass
        made = ""
        for name in folder.split("/"):
            parent, made = made, join(made, name)
            try:
                os.mkdir(name, mode, dir_fd=self.open(parent))
            except FileExistsError:
                continue
        return self.open(folder)

    def parent(self, path: str) -> tuple[int, str]:
        """The handle of the folder that holds ``path``, and the name in it."""
        folder, _, name = path.rpartition("/")
        return self.open(folder), name

    def look(self, path: str) -> os.stat_result | None:
        """What stands at ``path``; None if nothing does, or if the way there leads over a link or a file."""
        try:
            handle, name = self.parent(path)
            return os.stat(name, dir_fd=handle, follow_symlinks=False)
        except OSError:
            return None


def remove_at(parent: int, name: str) -> None:
    """Remove what stands at a name, with all that is in it; links go as links. FileNotFoundError is no error."""
    try:
        os.unlink(name, dir_fd=parent)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # a folder, in the words of Linux and of macOS
        pass
    found: list[str] = []
    pending = [""]
    open_up(name, parent)
    with Beneath(name, parent) as handles:
        while pending:
            folder = pending.pop()
            found.append(folder)
            pending += [join(folder, inner) for inner in empty_folder(handles.open(folder))]
        for folder in reversed(found[1:]):
            handle, last = handles.parent(folder)
            os.rmdir(last, dir_fd=handle)
    os.rmdir(name, dir_fd=parent)
