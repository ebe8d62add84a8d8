"""The content store, which keeps each file once under the digest of its content."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable

from ..errors import SnapshotError
from ..remote.shared.folder_tree import NEW, clone, make_private
from ..remote.shared.layout import Root
from .scan_cache import write_atomically
from .snapshot_warnings import format_size

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_CREATE = (NEW & ~os.O_WRONLY) | os.O_RDWR
_STALE = 24 * 3600
_PART = "part-"


class Store:
    """Writer that adds files to the store. ``pending``: remaining bytes, to detect a full disk early."""

    def __init__(self, root: Root, pending: int, report: Callable[[int], None]) -> None:
        self._root = root
        self._pending = pending
        self._report = report
        self._clones = True
        self._ready = False

    def has(self, sha256: str, size: int) -> bool:
        """Return whether the blob exists with the right size; a power failure may have truncated it."""
        try:
            return os.stat(self._root.blob(sha256)).st_size == size
        except OSError:
            return False

    def add(self, source: int, size: int, guess: str = "") -> tuple[str, int]:
        """Store the first ``size`` bytes of a file.

        Return the digest and the number of stored bytes. An ``OSError`` always concerns the source file.
        """
        if size <= _CHUNK:
            return self._add_small(source, size)
        if guess and self.has(guess, size) and _digest(source, size, self._report) == guess:
            return guess, size
        return self._add_large(source, size)

    def write_manifest(self, digest: str, data: bytes) -> None:
        """Write the manifest as the last step of a snapshot: it exists only if all its blobs do."""
        try:
            make_private(self._root.path, self._root.snapshots)
            write_atomically(self._root.snapshot(digest), data)
        except OSError as error:
            raise self._refused(error) from error

    def _add_small(self, source: int, size: int) -> tuple[str, int]:
        data = _read(source, size, 0)
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.has(sha256, len(data)):
            part, target = self._create(source)
            try:
                self._write(target, data)
            except BaseException:
                _discard(part, target)
                raise
            self._publish(part, target, sha256)
        self._report(len(data))
        return sha256, len(data)

    def _add_large(self, source: int, size: int) -> tuple[str, int]:
        part, target = self._create(source)
        try:
            self._clones = self._clones and self._clone(source, target)
            if self._clones:
                size = os.fstat(target).st_size
                sha256 = _digest(target, size, self._report)
            else:
                sha256, size = self._copy(source, target, size)
        except BaseException:
            _discard(part, target)
            raise
        self._publish(part, target, sha256)
        return sha256, size

    def _copy(self, source: int, target: int, size: int) -> tuple[str, int]:
        digest = hashlib.sha256()
        done = 0
        while done < size:
            data = _read(source, min(_CHUNK, size - done), done)
            if not data:
                break
            digest.update(data)
            if data == _ZEROS:  # probably a hole: keep it
                os.lseek(target, len(data), os.SEEK_CUR)
            else:
                self._write(target, data)
            done += len(data)
            self._report(len(data))
        try:
            os.ftruncate(target, done)
        except OSError as error:
            raise self._refused(error) from error
        return digest.hexdigest(), done

    def _create(self, source: int) -> tuple[str, int]:
        part = os.path.join(self._root.blobs, f"{_PART}{os.getpid()}-{os.urandom(8).hex()}")
        try:
            if not self._ready:
                make_private(self._root.path, self._root.blobs)
                self._sweep()
            target = os.open(part, _CREATE, 0o600)
        except OSError as error:
            raise self._refused(error) from error
        if not self._ready:
            self._ready = True
            if self._free() < self._pending:
                # Cloning needs no disk space. A successful attempt fills the file, so truncate it.
                if not self._clone(source, target):
                    _discard(part, target)
                    raise self._full()
                os.ftruncate(target, 0)
        return part, target

    def _clone(self, source: int, target: int) -> bool:
        try:
            return clone(source, target)
        except OSError as error:
            raise self._refused(error) from error

    def _write(self, target: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(target, view) :]
        except OSError as error:
            raise self._refused(error) from error

    def _publish(self, part: str, target: int, sha256: str) -> None:
        blob = self._root.blob(sha256)
        try:
            os.close(target)
            try:
                os.rename(part, blob)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(blob), 0o700, exist_ok=True)
                os.rename(part, blob)
        except OSError as error:
            _discard(part)
            raise self._refused(error) from error

    def _sweep(self) -> None:
        """Remove files left by killed snapshots."""
        with os.scandir(self._root.blobs) as listing:
            parts = [entry.path for entry in listing if entry.name.startswith(_PART)]
        for part in parts:
            try:
                if time.time() - os.stat(part).st_mtime > _STALE:
                    os.unlink(part)
            except FileNotFoundError:
                pass  # just removed by another snapshot

    def _free(self) -> int:
        disk = os.statvfs(self._root.blobs)
        return disk.f_bavail * disk.f_frsize

    def _refused(self, error: OSError) -> SnapshotError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return self._full()
        return SnapshotError(f"cannot write to the store {self._root.path}: {error.strerror}")

    def _full(self) -> SnapshotError:
        return SnapshotError(
            f"the disk that holds {self._root.path} (mounted at {_mount(self._root.path)}) has no room for the"
            f" snapshot: up to {format_size(self._pending)} needed, {format_size(self._free())} free",
            "free disk space, or list what the run does not need in .mlwignore",
        )


def _read(source: int, size: int, offset: int) -> bytes:
    """Read up to ``size`` bytes. Fewer are returned only at the end of the file."""
    data = os.pread(source, size, offset)
    while data and len(data) < size:
        more = os.pread(source, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _digest(source: int, size: int, report: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    done = 0
    while done < size:
        data = os.pread(source, min(_CHUNK, size - done), done)
        if not data:
            break
        digest.update(data)
        done += len(data)
        report(len(data))
    return digest.hexdigest()


def _discard(part: str, target: int = -1) -> None:
    try:
        if target >= 0:
            os.close(target)
        os.unlink(part)
    except OSError:
        pass


def _mount(path: str) -> str:
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path
