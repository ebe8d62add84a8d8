"""Read files of a run for clients: new bytes, single files, and outputs. Links are not followed."""

from __future__ import annotations

import errno
import os
import stat
import time

from .pending_ending import unwritten_reason
from .shared import machine, metric_limits
from .shared.folder_tree import NOFOLLOW, FolderHandles
from .shared.layout import RunFolder, is_claimed
from .shared.message_frames import CHUNK
from .shared.metric_limits import MAX_LINE_LENGTH, MAX_SKIPPED

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

READABLE_FILES = frozenset(
    "spec.json log build.log events.jsonl outputs.json supervisor.log exit.json gpu.jsonl effort.jsonl"
    " checkpoints.json".split()
)
CHECKPOINTS = "checkpoints/"  # prefix of names below that folder
EVENTS = "events.jsonl"
# Seconds between checks: this share of the time waited so far, within these bounds.
MIN_PAUSE, MAX_PAUSE, PAUSE_SHARE = 0.004, 0.05, 0.05
MAX_METRIC_BYTES = 64 * 1024 * 1024  # per response; other files have no such limit
_OPEN_FLAGS = os.O_RDONLY | NOFOLLOW
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # not available on every system
    _OPEN_FLAGS |= getattr(os, _name, 0)


class RunUpdates:
    """New bytes in a run folder since the given offsets.

    Only complete lines of the journal and the metric files are sent, so that the client can process
    every byte that it receives, and an unfinished line does not count toward the response limit.
    """

    def __init__(self, run: RunFolder, offsets: Dict[str, int]) -> None:
        for name in offsets:
            check_name(name)
        self._run = run
        self._offsets = offsets
        self._searched: Dict[str, int] = {}  # file without a new complete line → its size when it was searched
        self.pending = False  # after parts(): metric files contain more data than was sent

    def status(self) -> Dict[str, bool]:
        run = self._run
        # Check the lock first, so as not to miss what a supervisor wrote before it released the lock.
        supervised = machine.is_locked(run.lock)
        exists, scheduled = os.path.exists(run.spec), os.path.exists(run.handle)
        return {"exists": exists, "claimed": is_claimed(run), "supervised": supervised, "scheduled": scheduled}

    def unwritten_reason(self) -> str:
        """Return why the ending of a finished run cannot be written, or "" if no ending is waiting to be written."""
        return unwritten_reason(self._run)

    def wait(self, seconds: float, pause: Callable[[float], bool]) -> None:
        """Wait until there are new bytes, ``pause`` returns true, or ``seconds`` have passed."""
        started_at = time.monotonic()
        while not self._has_updates() and self._is_active():
            elapsed = time.monotonic() - started_at
            if elapsed >= seconds or pause(min(MAX_PAUSE, max(MIN_PAUSE, PAUSE_SHARE * elapsed), seconds - elapsed)):
                return

    def _is_active(self) -> bool:
        """Return whether something may write new bytes: a supervisor, or a job of a scheduler."""
        status = self.status()
        return status["exists"] and status["claimed"] and (status["supervised"] or status["scheduled"])

    def _has_updates(self) -> bool:
        exhausted = metric_limits.bytes_left(self._offsets) <= 0
        offsets = (item for item in self._offsets.items() if not (exhausted and _is_metrics(item[0])))
        if any(self._has_more(name, offset) for name, offset in offsets):
            return True
        return not exhausted and any(self._has_more(name, 0) for name in self._find_new_metrics())

    def _has_more(self, name: str, offset: int) -> bool:
        path = os.path.join(self._run.path, name)
        size = _file_size(path)
        if size <= offset or not (name == EVENTS or _is_metrics(name)):
            return size > offset
        if self._searched.get(name) == size:
            return False
        lines, _ = self._read_lines(name, offset, MAX_LINE_LENGTH)
        if not lines:
            self._searched[name] = size
        return bool(lines)

    def _find_new_metrics(self) -> List[str]:
        """Return the non-empty metric files for which the client has no offset."""
        max_files = metric_limits.files_left(self._offsets)
        names: List[str] = []
        try:
            for entry in metric_limits.scan_folder(self._run.metrics) if max_files > 0 else ():
                name = metric_limits.PREFIX + entry.name
                if name in self._offsets or not metric_limits.is_metric_file(entry.name):
                    continue
                if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size:
                    names.append(name)
                if len(names) >= max_files:
                    break
        except OSError:
            pass  # no metrics yet, a different file in their place, or a file was just removed
        return names

    def parts(self, limit: int) -> Iterator[Tuple[str, bytes]]:
        """Yield the name and new bytes of each file: events, other files, and metrics up to a limit.

        The events may contain the ending. Metrics are read after them, so everything logged before the end
        is in this response, unless ``pending`` is set.
        """
        self.pending = False
        offsets = dict(self._offsets)
        if EVENTS in offsets:
            events, _ = self._read_lines(EVENTS, offsets.pop(EVENTS), limit)
            if events:
                yield EVENTS, events
        for name in [name for name in offsets if not _is_metrics(name)]:
            data = read_regular_file(os.path.join(self._run.path, name), offsets.pop(name), limit)
            if data:
                yield name, data
        offsets.update((name, 0) for name in self._find_new_metrics())
        yield from self._metric_parts(offsets, limit)

    def _metric_parts(self, offsets: Dict[str, int], limit: int) -> Iterator[Tuple[str, bytes]]:
        room, remaining = MAX_METRIC_BYTES, metric_limits.bytes_left(self._offsets)
        for name, offset in offsets.items():
            if remaining <= 0:
                break  # the run's limit is reached: the rest is never sent
            if room <= 0:
                self.pending = True
                break
            data, more = self._read_lines(name, offset, limit)
            room, remaining = room - len(data), remaining - len(data)
            self.pending = self.pending or more
            if data:
                yield name, data
        if remaining <= 0:
            self.pending = False

    def _read_lines(self, name: str, offset: int, limit: int) -> Tuple[bytes, bool]:
        """Return the complete lines from ``offset``, and whether there may be more.

        A line longer than ``limit`` is sent in pieces, up to a maximum length, and the client skips it. In
        the journal, no such line is sent, because its supervisor removes it.
        """
        try:
            descriptor = os.open(os.path.join(self._run.path, name), _OPEN_FLAGS)
        except (OSError, ValueError):
            return b"", False
        try:
            data = b"" if _in_hole(descriptor, offset, offset + limit) else read_descriptor(descriptor, offset, limit)
            end = data.rfind(b"\n") + 1
            if end:
                return data[:end], len(data) >= limit
            if name == EVENTS or _is_line_too_long(descriptor, offset):
                return b"", False
            data = read_descriptor(descriptor, offset, limit)
            return (data, True) if len(data) >= limit else (b"", False)
        finally:
            os.close(descriptor)


def _is_line_too_long(descriptor: int, offset: int) -> bool:
    """Return whether the line at ``offset`` is longer than the maximum that clients skip."""
    begin = offset - MAX_SKIPPED
    pieces = range(begin, offset, MAX_LINE_LENGTH)
    return begin >= 0 and not any(
        not _in_hole(descriptor, position, position + MAX_LINE_LENGTH)
        and b"\n" in read_descriptor(descriptor, position, MAX_LINE_LENGTH)
        for position in pieces
    )


def _in_hole(descriptor: int, start: int, end: int) -> bool:
    """Return whether there is only a hole between these offsets of a sparse file; False if unknown."""
    if not hasattr(os, "SEEK_DATA"):
        return False
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA) >= end
    except OSError as error:
        return error.errno == errno.ENXIO  # only a hole up to the end of the file


def _is_metrics(name: str) -> bool:
    return name.startswith(metric_limits.PREFIX)


def check_name(name: str) -> None:
    """Raise ValueError unless clients may read this file."""
    folder, _, rest = name.partition("/")
    if name not in READABLE_FILES and (
        folder != "metrics" or not rest or "/" in rest or rest in (".", "..") or "\0" in rest
    ):
        raise ValueError("file %a cannot be read" % name)


def read_run_file(run: RunFolder, name: str, offset: int, limit: int) -> bytes:
    """Read a file of a run. Raise ValueError unless clients may read it."""
    if not name.startswith(CHECKPOINTS):
        check_name(name)
        return read_regular_file(os.path.join(run.path, name), offset, limit)
    try:
        with FolderHandles(run.checkpoints) as folders:
            descriptor = open_regular_file(folders, name[len(CHECKPOINTS) :])
            if descriptor is None:
                return b""
            try:
                return read_descriptor(descriptor, offset, limit)
            finally:
                os.close(descriptor)
    except OSError:
        return b""


def read_regular_file(path: str, offset: int, limit: int) -> bytes:
    """Read bytes from a regular file. Return b"" for anything that a script may have put in its place."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except (OSError, ValueError):
        return b""
    try:
        return read_descriptor(descriptor, offset, limit)
    finally:
        os.close(descriptor)


def read_descriptor(descriptor: int, offset: int, limit: int) -> bytes:
    """Read bytes from an open regular file."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return _pread(descriptor, limit, offset)
    except (OSError, OverflowError):
        return b""


def _pread(descriptor: int, limit: int, offset: int) -> bytes:
    # Limit reads to the file size: Python allocates the whole limit first, and most reads return a few bytes.
    limit = max(0, min(limit, os.fstat(descriptor).st_size - offset))
    if hasattr(os, "pread"):
        return os.pread(descriptor, limit, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, limit)


def _file_size(path: str) -> int:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def read_outputs(run: RunFolder, files: List[List[Any]]) -> Iterator[Tuple[int, bytes]]:
    """Yield the index in ``files`` and the next bytes of each file, up to its recorded size.

    ``files`` contains [path below outputs, offset, size]. Unreadable files yield nothing. Sorted paths
    are fastest, because folders stay open.
    """
    try:
        folders = FolderHandles(run.outputs)
    except OSError:
        return
    with folders:
        for index, (path, offset, size) in enumerate(files):
            descriptor = open_regular_file(folders, path)
            if descriptor is None:
                continue
            try:
                while offset < size:  # the file may have grown since its size was recorded at the end of the run
                    data = os.pread(descriptor, min(CHUNK, size - offset), offset)
                    if not data:
                        break
                    yield index, data
                    offset += len(data)
            except OSError:
                continue
            finally:
                os.close(descriptor)


def open_regular_file(folders: FolderHandles, path: str) -> Optional[int]:
    """Open a regular file without following links. Return None if there is no such file."""
    folder, _, name = path.rpartition("/")
    if {"", ".", ".."}.intersection(path.split("/")) or "\0" in path:
        return None
    try:
        descriptor = os.open(name, _OPEN_FLAGS, dir_fd=folders.open(folder))
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
