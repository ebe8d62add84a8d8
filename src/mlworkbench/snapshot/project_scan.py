"""Scan a project to find the files to upload and those unchanged since the last scan.

Only ignore files are opened.
"""

from __future__ import annotations

import errno
import os
import stat

from ..remote.shared.folder_tree import CLOEXEC, NOFOLLOW, FolderHandles, join
from .ignore_rules import IGNORE_FILES, IGNORED, SPECIAL, Chain, Rules, exclusion_reason, folder_exclusion_reason
from .scan_cache import FileRecord, Folder

READ = os.O_RDONLY | NOFOLLOW | CLOEXEC | getattr(os, "O_NONBLOCK", 0)
# Errors that ``open()`` raises if the entry was removed or replaced in the meantime.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_MARK = {"files": "", "links": "", "folders": "/", "special": "//"}
_LARGEST_RULES = 1 << 20


class Scan:
    """A scan of a project. The constructor runs the scan, and the attributes contain the result."""

    def __init__(self, project: str, previous: dict[str, Folder], skip: str | None = None) -> None:
        self.folders: dict[str, Folder] = {}
        self.unread: list[tuple[str, OSError]] = []
        self.gone: list[str] = []
        self.todo: list[tuple[str, str]] = []  # (folder, name) of the files whose content must be read
        self.todo_size = 0
        self.todo_room = 0  # size on disk, which is smaller for files with holes
        self._previous = previous
        self._skip = skip
        with FolderHandles(project) as handles:
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
        self.changed = bool(self.gone) or self.folders != previous

    def _fail(self, path: str, error: OSError) -> None:
        if error.errno in GONE and path:
            self.gone.append(path)
        else:
            self.unread.append((path or ".", error))

    def _visit(
        self, folder: str, handle: int, entries: list[os.DirEntry[str]], trusted: bool, chain: Chain
    ) -> list[tuple[str, bool, Chain]]:
        """Record one folder and return those of its subfolders that are uploaded."""
        names = {entry.name for entry in entries}
        old = self._previous.get(folder)
        reason = folder_exclusion_reason(chain, folder, names) if folder else ""
        if reason:
            self.folders[folder] = Folder(files={}, links={}, folders=[], left={".": reason}, rules={})
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
                entry_record = unchanged.get(name)
                if entry_record is not None and _same(entry.stat(follow_symlinks=False), entry_record):
                    files[name] = entry_record
                else:
                    self._add_entry(folder, handle, entry, old if trusted else None, chain)
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

    def _add_entry(self, folder: str, handle: int, entry: os.DirEntry[str], old: Folder | None, chain: Chain) -> None:
        """Record an entry that is new, changed, or not a regular file."""
        name = entry.name
        kind = _kind(entry)
        now = self.folders[folder]
        reason = self._exclusion_reason(folder, name, kind, old, chain)
        if reason or kind == "special":
            now["left"][name + _MARK[kind]] = reason or SPECIAL
        elif kind == "links":
            now["links"][name] = os.readlink(name, dir_fd=handle)
        elif kind == "folders":
            now["folders"].append(name)
        else:
            self._add_file(folder, name, entry.stat(follow_symlinks=False))

    def _exclusion_reason(self, folder: str, name: str, kind: str, old: Folder | None, chain: Chain) -> str:
        if self._skip is not None and join(folder, name) == self._skip:
            return IGNORED
        if old is not None:
            reason = old["left"].get(name + _MARK[kind])
            if reason is not None:
                return reason
            if kind != "special" and name in old[kind]:  # type: ignore[literal-required]
                return ""
        return exclusion_reason(chain, folder, name, kind == "folders")

    def _add_file(self, folder: str, name: str, status: os.stat_result) -> None:
        old = self._previous.get(folder)
        record = old["files"].get(name) if old is not None else None
        if record is None or not _same(status, record):
            # Keep the previous digest as a guess, because often only the timestamp of a file has changed.
            record = describe(status, record[5] if record is not None else "")
            self.todo.append((folder, name))
            self.todo_size += status.st_size
            self.todo_room += min(status.st_size, status.st_blocks * 512)
        self.folders[folder]["files"][name] = record


def describe(status: os.stat_result, sha256: str) -> FileRecord:
    mode = 0o755 if status.st_mode & 0o100 else 0o644
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, mode, sha256]


def _same(status: os.stat_result, record: FileRecord) -> bool:
    return bool(
        status.st_mtime_ns == record[1]
        and status.st_ctime_ns == record[2]
        and status.st_size == record[0]
        and status.st_ino == record[3]
    )


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "links"
    if entry.is_dir(follow_symlinks=False):
        return "folders"
    return "files" if entry.is_file(follow_symlinks=False) else "special"


def _read_text(name: str, handle: int) -> str:
    """Read an ignore file. As in git, links are not followed, and only regular files are read."""
    descriptor = os.open(name, READ, dir_fd=handle)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), name)
        if status.st_size > _LARGEST_RULES:
            raise OSError(errno.EFBIG, "larger than 1 MB", name)
        return file.read(_LARGEST_RULES).decode("latin-1")
