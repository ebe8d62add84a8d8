"""Takes a snapshot of a project: scans it, brings new content into the store, writes the list of files last."""

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
from ..remote.shared.layout import Root
from ..remote.shared.store_lock import relying_on_store
from ..remote.shared.tree import Folders, join, portable
from .git import GitReader
from .ignore import OURS
from .notes import amount, describe_folders, describe_reading, describe_usual, listed, shown
from .record import Folder, Known, Record, load_record, new_record, save_record
from .scan import GONE, READ, Scan, describe
from .store import Store

Progress = Callable[[int, int], None]

# A file written in the same tick of the clock as our reading looks unchanged later; git calls it racily clean.
# Two seconds is the coarsest clock of a file system in use (FAT).
_YOUNG = 2_000_000_000
_TRIES = 3
_REPORT_EACH = 0.1
LARGEST_FILE, LARGEST_PROJECT = 100 * 10**9, 10**12  # bytes, holes included


def take(project: Path, project_id: str, root: Root, cache: Path, progress: Progress | None = None) -> Snapshot:
    """Store the project's files as they are now; SnapshotError when that is not possible for all of them."""
    start = time.time_ns()
    git = GitReader(project)  # works beside us
    try:
        identity = [project_id, os.path.abspath(project)]
        record = load_record(cache, identity)
        scan = _scan(os.path.realpath(project), root, record)
        with relying_on_store(root):
            if record is not None and not scan.changed and _is_kept(root.snapshot(record["snapshot"])):
                digest, notes = record["snapshot"], record["notes"]
            else:
                intake = Intake(os.path.realpath(project), root, scan, start, progress)
                digest, record = intake.store_all(), None
        if record is None:
            record = new_record(identity, digest, scan.folders, describe_folders(scan.folders))
            notes = record["notes"] + describe_reading(intake.unsteady, scan.gone)
            _remember(cache, record)
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


def holds(root: Root, digest: str, path: str) -> bool:
    """Whether a snapshot has this file. Looks for its text: to parse a long list takes as long as the scan."""
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
    """Before anything is read: a file of terabytes takes no room if it is all holes, and its zeros take hours.

    What counts is the apparent size, also of holes: every byte of it is hashed, and exists again on the target.
    """
    if scan.todo_size <= LARGEST_FILE:  # all that has to be read
        return
    sizes = {(path, name): known[0] for path, folder in scan.folders.items() for name, known in folder["files"].items()}
    hint = f"list it in {OURS} if the run does not need it, or keep it in the shared folder"
    largest = max(sizes, key=lambda place: sizes[place], default=None)
    if largest and sizes[largest] > LARGEST_FILE:
        size, most = amount(sizes[largest]), amount(LARGEST_FILE)
        raise SnapshotError(f"{shown(join(*largest))} has {size}; a project file may have at most {most}", hint)
    total = sum(sizes.values())
    if largest and total > LARGEST_PROJECT:
        raise SnapshotError(
            f"the project has {amount(total)} in {len(sizes):,} files; a snapshot may have at most"
            f" {amount(LARGEST_PROJECT)}; its largest file is {shown(join(*largest))}",
            f"list what the run does not need in {OURS}, or keep it in the shared folder",
        )


def _is_kept(manifest: str) -> bool:
    """Whether the list is there; from now on it is young, so that no clean takes it before the run is recorded."""
    try:
        os.utime(manifest)
    except FileNotFoundError:
        return False
    return True


def _remember(cache: Path, record: Record) -> None:
    try:
        save_record(cache, record)
    except OSError:
        pass  # the next snapshot reads everything again; this one is whole


def _unreadable(unread: list[tuple[str, OSError]]) -> SnapshotError:
    count = "a file" if len(unread) == 1 else f"{len(unread):,} files"
    names = listed([f"{path} ({error.strerror})" for path, error in unread])
    return SnapshotError(
        f"cannot read {count} in the project: {names}",
        f"make them readable, or list them in {OURS} if the run does not need them",
    )


class Intake:
    """Brings into the store what it lacks of one scan, and corrects the scan by what was really read."""

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
        """The digest of the snapshot, which is in the store afterwards."""
        todo = self._scan.todo
        while True:
            self._read(todo)
            data = _list_files(self._scan.folders)
            digest = hashlib.sha256(data).hexdigest()
            if _is_kept(self._root.snapshot(digest)):
                return digest
            todo = self._lacking()
            if not todo:
                self._store.write_manifest(digest, data)
                return digest

    def _lacking(self) -> list[tuple[str, str]]:
        """Files whose content was known from before, but is no longer in the store."""
        return [
            (path, name)
            for path, folder in self._scan.folders.items()
            for name, known in folder["files"].items()
            if not self._store.has(known[5], known[0])
        ]

    def _read(self, todo: list[tuple[str, str]]) -> None:
        unread: list[tuple[str, OSError]] = []
        with Folders(self._project) as handles:
            for folder, name in todo:
                path = join(folder, name)
                files = self._scan.folders[folder]["files"]
                try:
                    source = os.open(name, READ, dir_fd=handles.open(folder))
                    try:
                        # Once something cannot be read, only look whether the rest could be.
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

    def _read_file(self, source: int, path: str, known: Known) -> Known:
        before = os.fstat(source)
        for _ in range(_TRIES):
            if not stat.S_ISREG(before.st_mode):
                raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
            sha256, size = self._store.add(source, before.st_size, known[5])
            after = os.fstat(source)
            if _stamp(before) == _stamp(after):
                break
            before = after
        else:
            self.unsteady.append(path)
        now = describe(after, sha256)
        now[0] = size
        if _stamp(before) != _stamp(after) or max(after.st_mtime_ns, after.st_ctime_ns) > self._start - _YOUNG:
            now[1] = None  # look again the next time
        return now

    def _report(self, count: int) -> None:
        self._done += count
        if self._progress and time.monotonic() - self._reported > _REPORT_EACH:
            self._reported = time.monotonic()
            self._progress(min(self._done, self._scan.todo_size), self._scan.todo_size)


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _list_files(folders: dict[str, Folder]) -> bytes:
    """The manifest, always the same bytes for the same files; names as UTF-8 whatever the locale is."""
    files, links, empty = [], [], []
    for path, folder in folders.items():
        files += [[portable(join(path, name)), k[5], k[0], k[4]] for name, k in folder["files"].items()]
        links += [[portable(join(path, name)), portable(text)] for name, text in folder["links"].items()]
        if path and not (folder["files"] or folder["links"] or folder["folders"] or "." in folder["left"]):
            empty.append(portable(path))
    manifest = {"version": 1, "files": sorted(files), "links": sorted(links), "folders": sorted(empty)}
    return json.dumps(manifest, separators=(",", ":"), ensure_ascii=True).encode("ascii")
