"""Copy files between folders: atomically, verified, resumable, and in constant memory."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import HistoryError
from ..remote.shared.folder_tree import NEW, READ, clone, points_inside
from .file_content import CHUNK, copy, digest, write_at
from .output_manifest import LINK, Output
from .safe_paths import SafeFolders, path_problem

_TRIES = 2
_MAX_ENTRIES = 1000
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# O_NONBLOCK: opening must not block if a file was replaced by a FIFO.
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)
# Syncing smaller files is not worth the cost; their digests are verified when they are fetched again.
_MIN_SYNCED = 1 << 20

Report = Callable[[int], None]
Entries = Callable[[], Iterator[tuple[Output, str]]]  # outputs and their target names; called twice
T = TypeVar("T")


class LimitedList(list[T]):
    """List that stores the first items only: a run may have 100,000 outputs. ``total`` counts all appended items."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def append(self, item: T) -> None:
        self.total += 1
        if self.total <= _MAX_ENTRIES:
            super().append(item)


@dataclass
class Outcome:
    """Result of a transfer."""

    copied: int = 0
    same: int = 0  # already present, with the same content
    size: int = 0
    links: int = 0
    exists: LimitedList[str] = field(default_factory=LimitedList)  # paths where something else exists
    failed: LimitedList[tuple[str, str]] = field(default_factory=LimitedList)
    skipped: LimitedList[tuple[str, str]] = field(default_factory=LimitedList)  # not files; reported, but not a failure

    @property
    def is_complete(self) -> bool:
        return not self.exists and not self.failed


class _Refused(Exception):
    """Error for a single file that cannot be copied. Other files are not affected."""


class _Exists(Exception):
    """Error for a path where something else already exists."""


class Transfer:
    """Copier of files from one folder to another.

    ``atomic``: the target folder is private until it is complete, so files are written under their
    final names, and existing files are from an earlier attempt. Otherwise, each file appears
    separately, and existing files belong to the user.
    """

    def __init__(
        self,
        source: str,
        target: SafeFolders,
        *,
        atomic: bool,
        resumed: bool = False,
        overwrite: bool = False,
        report: Report | None = None,
    ) -> None:
        self.outcome = Outcome()
        self._source = SafeFolders(source)
        self._target = target
        self._atomic = atomic
        self._resumed = resumed
        self._overwrite = overwrite
        self._report = report or (lambda count: None)
        self._clones = True
        self._links = 0

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, entries: Entries, on_added: Callable[[Output, str], None] | None = None) -> Outcome:
        """Copy all outputs and call ``on_added`` for each. Links are created last."""
        for output, name in entries():
            if self._attempt(self._add, output, name) and on_added:
                on_added(output, name)
        for output, name in entries() if self._links else ():
            if output.kind == LINK and self._points_inside(output, name):
                self._attempt(self._link, output, name)
        return self.outcome

    def _attempt(self, step: Callable[[Output, str], bool], output: Output, name: str) -> bool:
        """Run a step for one output. Errors are recorded in the outcome; only a full disk raises an error."""
        try:
            return step(output, name)
        except _Exists:
            self.outcome.exists.append(name)
        except _Refused as error:
            self.outcome.failed.append((output.path, str(error)))
        except OSError as error:
            if error.errno in _DISK_FULL:
                raise HistoryError(
                    "the disk for the outputs is full",
                    "free disk space and run the command again: it continues where it stopped",
                ) from error
            self.outcome.failed.append((output.path, _error_text(error)))
        return False

    def _add(self, output: Output, name: str) -> bool:
        if output.kind == LINK:
            if not self._points_inside(output, name):
                self.outcome.skipped.append((output.path, f"link to {output.to}, which is outside the outputs"))
                return False
            self._links += 1
            return True
        if not output.is_file:
            self.outcome.skipped.append((output.path, output.described))
            return False
        problem = path_problem(output.path) or path_problem(name)
        if problem:
            raise _Refused(problem)
        self._file(output, name)
        return True

    # -- links -------------------------------------------------------------------------------------

    def _points_inside(self, output: Output, name: str) -> bool:
        return not path_problem(output.path) and not path_problem(name) and points_inside(name, output.to)

    def _link(self, output: Output, path: str) -> bool:
        handle, name = self._folder(path)
        try:
            os.symlink(output.to, name, dir_fd=handle)
        except FileExistsError:
            if _link_text(handle, name) != output.to:
                if not self._overwrite and not self._atomic:
                    raise _Exists from None
                os.unlink(name, dir_fd=handle)
                os.symlink(output.to, name, dir_fd=handle)
        self.outcome.links += 1
        return True

    # -- files -------------------------------------------------------------------------------------

    def _folder(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self._target.make(folder), name

    def _file(self, output: Output, name: str) -> None:
        handle, base_name = self._folder(name)
        part = base_name if self._atomic else _part_name(output, name)
        if not self._atomic and self._is_present(handle, base_name, output):
            if self._resumed:
                _remove_part(handle, part)  # a killed attempt may have left the part file
            self.outcome.same += 1
            return
        parent, source_name = self._source.parent(output.path)
        try:
            source = os.open(source_name, _OPEN, dir_fd=parent)
        except OSError as error:
            raise _Refused(f"no longer a file of the run ({_error_text(error)})") from None
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                raise _Refused("no longer a file")
            if output.sha256 and status.st_size < CHUNK:
                is_new = self._copy_small(source, status, output.sha256, handle, part)
            else:
                is_new = self._copy_large(source, output, handle, part)
        finally:
            os.close(source)
        if not self._atomic:
            self._publish(handle, part, base_name)
        if is_new:
            self.outcome.copied += 1
        else:
            self.outcome.same += 1

    def _is_present(self, handle: int, name: str, output: Output) -> bool:
        """Return whether the same file exists. Raises ``_Exists`` if another entry must be kept."""
        try:
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.S_ISREG(status.st_mode) and output.sha256 and status.st_size == output.size:
            existing = os.open(name, _OPEN, dir_fd=handle)
            try:
                if digest(existing, output.size, self._count).hexdigest() == output.sha256:
                    return True
            finally:
                os.close(existing)
        if not self._overwrite or stat.S_ISDIR(status.st_mode):
            raise _Exists
        return False

    def _copy_small(self, source: int, status: os.stat_result, sha256: str, handle: int, part: str) -> bool:
        """Verify the content before writing. Return False if an earlier attempt already copied it."""
        data = os.pread(source, status.st_size + 1, 0)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise _Refused("content differs from what was recorded when the run ended")
        try:
            target = os.open(part, NEW, _mode(status), dir_fd=handle)
        except FileExistsError:
            if _has_content(handle, part, data):
                return False
            os.unlink(part, dir_fd=handle)
            target = os.open(part, NEW, _mode(status), dir_fd=handle)
        try:
            write_at(target, data, 0)
        finally:
            os.close(target)
        self._count(len(data))
        return True

    def _copy_large(self, source: int, output: Output, handle: int, part: str) -> bool:
        for _ in range(_TRIES):
            if self._copy_once(source, output, handle, part):
                return True
        raise _Refused(
            "content differs from what was recorded when the run ended" if output.sha256 else "changed while copying"
        )

    def _copy_once(self, source: int, output: Output, handle: int, part: str) -> bool:
        """Complete the part file. If its content is wrong, remove it and return False."""
        before = os.fstat(source)
        target = _open_part(part, handle, _mode(before))
        try:
            if not output.sha256:
                os.ftruncate(target, 0)  # without a digest, outdated content could not be detected
            if self._clones and before.st_size and not os.fstat(target).st_size:
                self._clones = clone(source, target)
            copied_digest = copy(source, target, before.st_size, self._count)
            after = os.fstat(source)
            if output.sha256:
                is_correct = copied_digest == output.sha256
            else:
                is_correct = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
            if is_correct and before.st_size >= _MIN_SYNCED:
                os.fsync(target)
            if not is_correct:
                os.unlink(part, dir_fd=handle)
            return is_correct
        finally:
            os.close(target)

    def _count(self, size: int) -> None:
        self.outcome.size += size
        self._report(self.outcome.size)

    def _publish(self, handle: int, part: str, name: str) -> None:
        if self._overwrite:
            os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)  # replaces a link instead of following it
            return
        try:
            # Unlike a rename, this never replaces a file that appeared in the meantime.
            os.link(part, name, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)
        except FileExistsError:
            os.unlink(part, dir_fd=handle)
            raise _Exists from None
        except OSError:  # a file system without hard links
            if _exists(handle, name):
                os.unlink(part, dir_fd=handle)
                raise _Exists from None
            os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)
            return
        os.unlink(part, dir_fd=handle)


def _remove_part(handle: int, part: str) -> None:
    try:
        os.unlink(part, dir_fd=handle)
    except FileNotFoundError:
        pass


def _exists(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _part_name(output: Output, name: str) -> str:
    """Return a short name that depends only on the file, so that a later attempt can resume."""
    key = hashlib.sha256(f"{name}\0{output.sha256}".encode("utf-8", "surrogateescape")).hexdigest()
    return f".mlw-{key[:24]}.part"


def _open_part(part: str, handle: int, mode: int) -> int:
    """Open the part file of an earlier attempt, or create one. The download's lock protects it."""
    try:
        return os.open(part, (NEW & ~os.O_WRONLY) | os.O_RDWR, mode, dir_fd=handle)
    except FileExistsError:
        target = os.open(part, (_OPEN & ~os.O_RDONLY) | os.O_RDWR, dir_fd=handle)
    status = os.fstat(target)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(target)
        raise _Refused(f"cannot replace {part}")
    return target


def _has_content(handle: int, name: str, data: bytes) -> bool:
    try:
        file = os.open(name, _OPEN, dir_fd=handle)
    except OSError:
        return False  # a link, or missing
    try:
        status = os.fstat(file)
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and os.pread(file, len(data) + 1, 0) == data
    finally:
        os.close(file)


def _link_text(handle: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=handle)
    except OSError:
        return None  # not a link


def _mode(status: os.stat_result) -> int:
    return 0o755 if status.st_mode & 0o100 else 0o644


def _error_text(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "blocked by an existing link or file"
    return error.strerror or str(error)
