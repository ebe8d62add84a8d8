"""Looks at the project: which files travel, and which of them are unchanged since the last look.

Opens no file but ignore files.
"""

from __future__ import annotations

import errno
import os
import stat

from ..remote.shared.tree import CLOEXEC, NOFOLLOW, Folders, join
from .ignore import IGNORE_FILES, IGNORED, SPECIAL, Chain, Rules, judge, judge_content
from .record import Folder, Known

READ = os.O_RDONLY | NOFOLLOW | CLOEXEC | getattr(os, "O_NONBLOCK", 0)
# What opening answers when the thing is not there any more, or has become something else.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_MARK = {"files": "", "links": "", "folders": "/", "special": "//"}
_LARGEST_RULES = 1 << 20


class Scan:
    """One look at a project; what it found stands in its fields."""

    def __init__(self, project: str, known: dict[str, Folder], skip: str | None = None) -> None:
        self.folders: dict[str, Folder] = {}
        self.unread: list[tuple[str, OSError]] = []
        self.gone: list[str] = []
        self.todo: list[tuple[str, str]] = []  # (folder, name) of the files whose content must be read
        self.todo_size = 0
        self.todo_room = 0  # what they take on the disk: less, where there are holes
        self._known = known
        self._skip = skip
        with Folders(project) as handles:
            pending: list[tuple[str, bool, Chain]] = [("", True, ())]
            while pending:
                folder, trusted, chain = pending.pop()
                try:
                    handle = handles.open(folder)
                    with os.scandir(handle) as listing:
                        entries = list(listing)
                except OSError as error:
                    self._fail(folder, error)
                    continue
                pending += self._visit(folder, handle, entries, trusted, chain)
        self.changed = bool(self.gone) or self.folders != known

    def _fail(self, path: str, error: OSError) -> None:
        if error.errno in GONE and path:
            self.gone.append(path)
        else:
            self.unread.append((path or ".", error))

    def _visit(
        self, folder: str, handle: int, entries: list[os.DirEntry[str]], trusted: bool, chain: Chain
    ) -> list[tuple[str, bool, Chain]]:
        """Record one folder; the folders in it that travel, too, are the answer."""
        names = {entry.name for entry in entries}
        old = self._known.get(folder)
        why = judge_content(chain, folder, names) if folder else ""
        if why:
            self.folders[folder] = Folder(files={}, links={}, folders=[], left={".": why}, rules={})
            return []
        texts = self._read_rules(folder, handle, names)
        chain += tuple(Rules(folder, name, text.encode("latin-1")) for name, text in texts.items())
        trusted = trusted and old is not None and old["rules"] == texts
        now = Folder(files={}, links={}, folders=[], left={}, rules=texts)
        self.folders[folder] = now
        files = now["files"]
        unchanged = old["files"] if old is not None and trusted else {}
        for entry in entries:
            name = entry.name
            try:
                known = unchanged.get(name)
                if known is not None and _same(entry.stat(follow_symlinks=False), known):
                    files[name] = known
                else:
                    self._sort(folder, handle, entry, old if trusted else None, chain)
            except OSError as error:
                self._fail(join(folder, name), error)
        now["folders"].sort()
        return [(join(folder, name), trusted, chain) for name in now["folders"]]

    def _read_rules(self, folder: str, handle: int, names: set[str]) -> dict[str, str]:
        texts = {}
        for name in IGNORE_FILES:
            if name in names:
                try:
                    texts[name] = _read_text(name, handle)
                except OSError as error:
                    if error.errno not in GONE:
                        self.unread.append((join(folder, name), error))
        return texts

    def _sort(self, folder: str, handle: int, entry: os.DirEntry[str], old: Folder | None, chain: Chain) -> None:
        """Record one entry that is new, changed, or not a file."""
        name = entry.name
        kind = _kind(entry)
        now = self.folders[folder]
        why = self._judge(folder, name, kind, old, chain)
        if why or kind == "special":
            now["left"][name + _MARK[kind]] = why or SPECIAL
        elif kind == "links":
            now["links"][name] = os.readlink(name, dir_fd=handle)
        elif kind == "folders":
            now["folders"].append(name)
        else:
            self._add_file(folder, name, entry.stat(follow_symlinks=False))

    def _judge(self, folder: str, name: str, kind: str, old: Folder | None, chain: Chain) -> str:
        if self._skip is not None and join(folder, name) == self._skip:
            return IGNORED
        if old is not None:
            why = old["left"].get(name + _MARK[kind])
            if why is not None:
                return why
            if kind != "special" and name in old[kind]:  # type: ignore[literal-required]
                return ""
        return judge(chain, folder, name, kind == "folders")

    def _add_file(self, folder: str, name: str, found: os.stat_result) -> None:
        old = self._known.get(folder)
        known = old["files"].get(name) if old is not None else None
        if known is None or not _same(found, known):
            # The digest of before is kept as a guess: often only the time of a file has changed.
            known = describe(found, known[5] if known is not None else "")
            self.todo.append((folder, name))
            self.todo_size += found.st_size
            self.todo_room += min(found.st_size, found.st_blocks * 512)
        self.folders[folder]["files"][name] = known


def describe(found: os.stat_result, sha256: str) -> Known:
    mode = 0o755 if found.st_mode & 0o100 else 0o644
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, mode, sha256]


def _same(found: os.stat_result, known: Known) -> bool:
    return bool(
        found.st_mtime_ns == known[1]
        and found.st_ctime_ns == known[2]
        and found.st_size == known[0]
        and found.st_ino == known[3]
    )


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "links"
    if entry.is_dir(follow_symlinks=False):
        return "folders"
    return "files" if entry.is_file(follow_symlinks=False) else "special"


def _read_text(name: str, handle: int) -> str:
    """An ignore file; a link is not followed, as in git, and nothing that is not a file is read."""
    descriptor = os.open(name, READ, dir_fd=handle)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), name)
        if found.st_size > _LARGEST_RULES:
            raise OSError(errno.EFBIG, "larger than 1 MB", name)
        return file.read(_LARGEST_RULES).decode("latin-1")
