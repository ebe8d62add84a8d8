"""Access files below a folder by untrusted names, using file handles.

A name may come from another machine, and a script may replace a folder with a link at any time.
Every component is therefore opened separately, without following links, so that no path leads out
of the folder.
"""

from __future__ import annotations

import os

from ..remote.shared.folder_tree import FOLDER, NOFOLLOW, WINDOWS, FolderHandles, empty_folder, join, make_readable

_MAX_NAME = 255  # in bytes, on common file systems


def path_problem(path: str) -> str | None:
    """Return why this is not a valid relative path; None if it is valid."""
    if "\0" in path:
        return "the name contains a NUL character"
    try:
        longest = max(map(len, os.fsencode(path).split(b"/")))
    except UnicodeEncodeError:
        return "the name contains an invalid character"
    if longest > _MAX_NAME:
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


class SafeFolders(FolderHandles):
    """Handles for the folders below a base folder, created on demand."""

    def __init__(self, folder: str, parent: int | None = None) -> None:
        # Skips the base constructor: with a parent, the name is relative to it, not to the current folder.
        self._handles = [("", os.open(folder, FOLDER | NOFOLLOW, dir_fd=parent))]

    def __enter__(self) -> SafeFolders:
        return self

    def make(self, folder: str, mode: int = 0o777) -> int:
        """Return a folder handle, creating the folder if needed. Links and files raise ``OSError``."""
        try:
            return self.open(folder)
        except FileNotFoundError:
            pass
        path = ""
        for name in folder.split("/"):
            parent, path = path, join(path, name)
            try:
                os.mkdir(name, mode, dir_fd=self.open(parent))
            except FileExistsError:
                continue
        return self.open(folder)

    def parent(self, path: str) -> tuple[int, str]:
        """Return the handle of the folder that contains ``path``, and the name within that folder."""
        folder, _, name = path.rpartition("/")
        return self.open(folder), name

    def lstat(self, path: str) -> os.stat_result | None:
        """Return the status of ``path``; None if it is missing or below a link or a file."""
        try:
            handle, name = self.parent(path)
            return os.stat(name, dir_fd=handle, follow_symlinks=False)
        except OSError:
            return None


def remove_at(parent: int, name: str) -> None:
    """Remove a file, link, or folder tree if it exists, without following links."""
    try:
        os.unlink(name, dir_fd=parent)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # a folder: Linux and macOS raise different errors
        pass
    folders: list[str] = []
    pending = [""]
    make_readable(name, parent)
    with SafeFolders(name, parent) as handles:
        while pending:
            folder = pending.pop()
            folders.append(folder)
            pending += [join(folder, inner) for inner in empty_folder(handles.open(folder))]
        for folder in reversed(folders[1:]):
            handle, base_name = handles.parent(folder)
            os.rmdir(base_name, dir_fd=handle)
    os.rmdir(name, dir_fd=parent)
