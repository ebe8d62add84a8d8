"""Take a snapshot of a project: scan it, add new content to the store, and write the manifest last."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import SnapshotError
from ..model import Snapshot
from ..remote.shared.folder_tree import FolderHandles, join, portable
from ..remote.shared.layout import Root
from ..remote.shared.store_lock import using_store
from ..sanitize import plain
from .content_store import Store
from .git_state import GitReader
from .ignore_rules import MLW_IGNORE
from .project_scan import GONE, READ, Scan, describe
from .scan_cache import FileRecord, Folder, Record, load_record, new_record, save_record
from .snapshot_warnings import (
    describe_folders,
    describe_reading,
    describe_usual,
    format_paths,
    format_size,
)

Progress = Callable[[int, int], None]

# A file written in the same clock tick as our read looks unchanged later; Git calls it "racily clean".
# Two seconds is the coarsest timestamp resolution of a common file system (FAT).
_RACY_NS = 2_000_000_000
_TRIES = 3
_REPORT_EACH = 0.1
LARGEST_FILE, LARGEST_PROJECT = 100 * 10**9, 10**12  # bytes, including holes


def take(project: Path, project_id: str, root: Root, cache: Path, progress: Progress | None = None) -> Snapshot:
    """Store the project's current files. Raises ``SnapshotError`` if any cannot be stored."""
    start = time.time_ns()
    git = GitReader(project)  # runs in the background
    try:
        identity = [project_id, os.path.abspath(project)]
        record = load_record(cache, identity)
        scan = _scan(os.path.realpath(project), root, record)
        with using_store(root):
            if record is not None and not scan.changed and _is_kept(root.snapshot(record["snapshot"])):
                digest, notes = record["snapshot"], record["notes"]
            else:
                writer = SnapshotWriter(os.path.realpath(project), root, scan, start, progress)
                digest, record = writer.store_all(), None
        if record is None:
            record = new_record(identity, digest, scan.folders, describe_folders(scan.folders))
            notes = record["notes"] + describe_reading(writer.unsteady, scan.gone)
            _save_cache(cache, record)
        state = git.finish()
    finally:
        git.close()
    return Snapshot(
        digest=record["snapshot"],
        files=record["count"],
        size=record["size"],
        git=state[0] if state else None,
        git_diff=state[1] if state else b"",
        notes=tuple(notes),
        left_out=describe_usual(record["folders"]),
    )


def has_file(root: Root, digest: str, path: str) -> bool:
    """Return whether a snapshot contains this file.

    Searches the text of the manifest, because parsing a long list takes as long as the scan.
    """
    with open(root.snapshot(digest), "rb") as file:
        return f"[{json.dumps(portable(path))},".encode() in file.read()


def _scan(project: str, root: Root, record: Record | None) -> Scan:
    home = os.path.realpath(root.path)
    inside = os.path.relpath(home, project) if home.startswith(project + os.sep) else None
    try:
        scan = Scan(project, record["folders"] if record else {}, skip=inside)
    except OSError as error:
        raise SnapshotError(f"cannot read the project folder {project}: {error.strerror}") from error
    if scan.unread:
        raise _unreadable(scan.unread)
    _check_size(scan)
    return scan


def _check_size(scan: Scan) -> None:
    """Reject huge projects before reading them.

    A sparse file of several terabytes needs no space, but reading it takes hours. The apparent size
    counts, including holes, because every byte is hashed and is written again on the target.
    """
    if scan.todo_size <= LARGEST_FILE:  # the new content is below both limits
        return
    sizes = {(path, name): file[0] for path, folder in scan.folders.items() for name, file in folder["files"].items()}
    hint = f"list it in {MLW_IGNORE} if the run does not need it, or keep it in the shared folder"
    largest = max(sizes, key=lambda place: sizes[place], default=None)
    if largest and sizes[largest] > LARGEST_FILE:
        size, most = format_size(sizes[largest]), format_size(LARGEST_FILE)
        raise SnapshotError(f"{plain(join(*largest))} has {size}; a project file may have at most {most}", hint)
    total = sum(sizes.values())
    if largest and total > LARGEST_PROJECT:
        raise SnapshotError(
            f"the project has {format_size(total)} in {len(sizes):,} files; a snapshot may have at most"
            f" {format_size(LARGEST_PROJECT)}; its largest file is {plain(join(*largest))}",
            f"list what the run does not need in {MLW_IGNORE}, or keep it in the shared folder",
        )


def _is_kept(manifest: str) -> bool:
    """Return whether the manifest exists, and update its timestamp to protect it from cleaning."""
    try:
        os.utime(manifest)
    except FileNotFoundError:
        return False
    return True


def _save_cache(cache: Path, record: Record) -> None:
    try:
        save_record(cache, record)
    except OSError:
        pass  # the next snapshot reads everything again; this one is complete


def _unreadable(unread: list[tuple[str, OSError]]) -> SnapshotError:
    count = "a file" if len(unread) == 1 else f"{len(unread):,} files"
    names = format_paths([f"{path} ({error.strerror})" for path, error in unread])
    return SnapshotError(
        f"cannot read {count} in the project: {names}",
        f"make them readable, or list them in {MLW_IGNORE} if the run does not need them",
    )


class SnapshotWriter:
    """Writer that adds missing content to the store, and updates the scan with the content it read."""

    def __init__(self, project: str, root: Root, scan: Scan, start: int, progress: Progress | None) -> None:
        self.unsteady: list[str] = []
        self._project = project
        self._root = root
        self._scan = scan
        self._start = start
        self._progress = progress
        self._done = 0
        self._reported = 0.0
        self._store = Store(root, scan.todo_room, self._report)

    def store_all(self) -> str:
        """Store the snapshot and return its digest."""
        todo = self._scan.todo
        while True:
            self._read(todo)
            data = _list_files(self._scan.folders)
            digest = hashlib.sha256(data).hexdigest()
            if _is_kept(self._root.snapshot(digest)):
                return digest
            todo = self._missing_content()
            if not todo:
                self._store.write_manifest(digest, data)
                return digest

    def _missing_content(self) -> list[tuple[str, str]]:
        """Return unchanged files whose content is no longer in the store."""
        return [
            (path, name)
            for path, folder in self._scan.folders.items()
            for name, file in folder["files"].items()
            if not self._store.has(file[5], file[0])
        ]

    def _read(self, todo: list[tuple[str, str]]) -> None:
        unread: list[tuple[str, OSError]] = []
        with FolderHandles(self._project) as handles:
            for folder, name in todo:
                path = join(folder, name)
                files = self._scan.folders[folder]["files"]
                try:
                    source = os.open(name, READ, dir_fd=handles.open(folder))
                    try:
                        # After a failure, only check whether the other files can be read.
                        if not unread:
                            files[name] = self._read_file(source, path, files[name])
                    finally:
                        os.close(source)
                except OSError as error:
                    if error.errno in GONE:
                        del files[name]
                        self._scan.gone.append(path)
                    else:
                        unread.append((path, error))
        if unread:
            raise _unreadable(unread)
        if todo and self._progress:
            self._progress(self._scan.todo_size, self._scan.todo_size)

    def _read_file(self, source: int, path: str, record: FileRecord) -> FileRecord:
        before = os.fstat(source)
        for _ in range(_TRIES):
            if not stat.S_ISREG(before.st_mode):
                raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
            sha256, size = self._store.add(source, before.st_size, record[5])
            after = os.fstat(source)
            if _stamp(before) == _stamp(after):
                break
            before = after
        else:
            self.unsteady.append(path)
        now = describe(after, sha256)
        now[0] = size
        if _stamp(before) != _stamp(after) or max(after.st_mtime_ns, after.st_ctime_ns) > self._start - _RACY_NS:
            now[1] = None  # read it again next time
        return now

    def _report(self, count: int) -> None:
        self._done += count
        if self._progress and time.monotonic() - self._reported > _REPORT_EACH:
            self._reported = time.monotonic()
            self._progress(min(self._done, self._scan.todo_size), self._scan.todo_size)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _list_files(folders: dict[str, Folder]) -> bytes:
    """Return the manifest, which has the same bytes for the same files. Names are always UTF-8."""
    files, links, empty = [], [], []
    for path, folder in folders.items():
        files += [[portable(join(path, name)), k[5], k[0], k[4]] for name, k in folder["files"].items()]
        links += [[portable(join(path, name)), portable(text)] for name, text in folder["links"].items()]
        if path and not (folder["files"] or folder["links"] or folder["folders"] or "." in folder["left"]):
            empty.append(portable(path))
    manifest = {"version": 1, "files": sorted(files), "links": sorted(links), "folders": sorted(empty)}
    return json.dumps(manifest, separators=(",", ":"), ensure_ascii=True).encode("ascii")
