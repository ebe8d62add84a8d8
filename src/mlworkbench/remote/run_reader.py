"""Bytes of a run for those who follow it: what is new, one file, the outputs. No link in a run folder is followed."""

from __future__ import annotations

import errno
import os
import stat
import time

from .pending_ending import why_unwritten
from .shared import machine, metric_files
from .shared.frames import CHUNK
from .shared.layout import RunFolder, is_taken
from .shared.metric_files import LONGEST_LINE, LONGEST_SKIPPED
from .shared.tree import NOFOLLOW, Folders

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

FILES = frozenset(
    "spec.json log build.log events.jsonl outputs.json supervisor.log exit.json gpu.jsonl effort.jsonl".split()
)
EVENTS = "events.jsonl"
QUICK, SLOW, SHARE = 0.004, 0.05, 0.05  # seconds between two looks: this share of the wait so far, within bounds
MOST = 64 * 1024 * 1024  # bytes of metrics in one answer; all else has room beside them
_PLAIN = os.O_RDONLY | NOFOLLOW
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # not all are on all systems
    _PLAIN |= getattr(os, _name, 0)


class News:
    """What is new in one run folder since some offsets.

    Journal and metrics files are handed out in whole lines. So the client takes in every byte that it gets, and what a
    script leaves without a line end uses no room of the others.
    """

    def __init__(self, run: RunFolder, offsets: Dict[str, int]) -> None:
        for name in offsets:
            check_name(name)
        self._run = run
        self._offsets = offsets
        self._searched: Dict[str, int] = {}  # of a file without a new line: its size then
        self.pending = False  # after parts(): metrics files hold more than was handed out

    def standing(self) -> Dict[str, bool]:
        run = self._run
        # The lock first: what a supervisor wrote before it let go of the lock must not be missed.
        supervised = machine.is_locked(run.lock)
        return {"exists": os.path.exists(run.spec), "claimed": is_taken(run), "supervised": supervised}

    def unwritten(self) -> str:
        """Why the ending of the run, which is over, cannot be written."""
        return why_unwritten(self._run)

    def wait(self, seconds: float, pause: Callable[[float], bool]) -> None:
        """Until something is new, ``pause`` says that we are wanted, or the time is over."""
        begun = time.monotonic()
        while not self._any() and all(self.standing().values()):
            passed = time.monotonic() - begun
            if passed >= seconds or pause(min(SLOW, max(QUICK, SHARE * passed), seconds - passed)):
                return

    def _any(self) -> bool:
        spent = metric_files.bytes_left(self._offsets) <= 0
        known = (one for one in self._offsets.items() if not (spent and _is_metrics(one[0])))
        if any(self._has_more(name, offset) for name, offset in known):
            return True
        return not spent and any(self._has_more(name, 0) for name in self._new_metrics())

    def _has_more(self, name: str, offset: int) -> bool:
        path = os.path.join(self._run.path, name)
        size = _size(path)
        if size <= offset or not (name == EVENTS or _is_metrics(name)):
            return size > offset
        if self._searched.get(name) == size:
            return False
        lines, _ = self._lines(name, offset, LONGEST_LINE)
        if not lines:
            self._searched[name] = size
        return bool(lines)

    def _new_metrics(self) -> List[str]:
        """Metrics files with content that the client does not know yet."""
        most = metric_files.files_left(self._offsets)
        found: List[str] = []
        try:
            for entry in metric_files.entries(self._run.metrics) if most > 0 else ():
                name = metric_files.PREFIX + entry.name
                if name in self._offsets or not metric_files.is_name(entry.name):
                    continue
                if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size:
                    found.append(name)
                if len(found) >= most:
                    break
        except OSError:
            pass  # no metrics yet, something else in their place, or one of them has just gone
        return found

    def parts(self, limit: int) -> Iterator[Tuple[str, bytes]]:
        """Name and new bytes of each file with any: events, then all else but metrics, then metrics while room is left.

        The events may tell the end of the run. Metrics are read after them: what was logged before the end is in this
        answer, unless it says that more is pending.
        """
        self.pending = False
        asked = dict(self._offsets)
        if EVENTS in asked:
            events, _ = self._lines(EVENTS, asked.pop(EVENTS), limit)
            if events:
                yield EVENTS, events
        for name in [name for name in asked if not _is_metrics(name)]:
            data = read_plain(os.path.join(self._run.path, name), asked.pop(name), limit)
            if data:
                yield name, data
        asked.update((name, 0) for name in self._new_metrics())
        yield from self._metric_parts(asked, limit)

    def _metric_parts(self, asked: Dict[str, int], limit: int) -> Iterator[Tuple[str, bytes]]:
        room, left = MOST, metric_files.bytes_left(self._offsets)
        for name, offset in asked.items():
            if left <= 0:
                break  # the rest is left out for good
            if room <= 0:
                self.pending = True
                break
            data, more = self._lines(name, offset, limit)
            room, left = room - len(data), left - len(data)
            self.pending = self.pending or more
            if data:
                yield name, data
        if left <= 0:
            self.pending = False

    def _lines(self, name: str, offset: int, limit: int) -> Tuple[bytes, bool]:
        """Whole lines from an offset on, and whether there may be more of them.

        A line that is longer than ``limit`` comes in pieces, which the client skips, until it is too long even for
        that. But not in the journal, where the supervisor removes it.
        """
        try:
            descriptor = os.open(os.path.join(self._run.path, name), _PLAIN)
        except (OSError, ValueError):
            return b"", False
        try:
            data = b"" if _in_hole(descriptor, offset, offset + limit) else read_open(descriptor, offset, limit)
            end = data.rfind(b"\n") + 1
            if end:
                return data[:end], len(data) >= limit
            if name == EVENTS or _ended_long_ago(descriptor, offset):
                return b"", False
            data = read_open(descriptor, offset, limit)
            return (data, True) if len(data) >= limit else (b"", False)
        finally:
            os.close(descriptor)


def _ended_long_ago(descriptor: int, offset: int) -> bool:
    """Whether the last line end before this offset is further away than anything is skipped."""
    begin = offset - LONGEST_SKIPPED
    pieces = range(begin, offset, LONGEST_LINE)
    return begin >= 0 and not any(
        not _in_hole(descriptor, at, at + LONGEST_LINE) and b"\n" in read_open(descriptor, at, LONGEST_LINE)
        for at in pieces
    )


def _in_hole(descriptor: int, start: int, end: int) -> bool:
    """Whether a sparse file has no data between these offsets. A disk that cannot tell has some everywhere."""
    if not hasattr(os, "SEEK_DATA"):
        return False
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA) >= end
    except OSError as error:
        return error.errno == errno.ENXIO  # nothing but a hole up to the end


def _is_metrics(name: str) -> bool:
    return name.startswith(metric_files.PREFIX)


def check_name(name: str) -> None:
    """Only files that are meant to be read from outside."""
    folder, _, rest = name.partition("/")
    if name not in FILES and (folder != "metrics" or not rest or "/" in rest or rest in (".", "..") or "\0" in rest):
        raise ValueError("file %a cannot be read" % name)


def read_plain(path: str, offset: int, limit: int) -> bytes:
    """Bytes of a plain file; a script may have put anything in its place."""
    try:
        descriptor = os.open(path, _PLAIN)
    except (OSError, ValueError):
        return b""
    try:
        return read_open(descriptor, offset, limit)
    finally:
        os.close(descriptor)


def read_open(descriptor: int, offset: int, limit: int) -> bytes:
    """The same of a file that is open."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return _pread(descriptor, limit, offset)
    except (OSError, OverflowError):
        return b""


def _pread(descriptor: int, limit: int, offset: int) -> bytes:
    # Not more than there is: Python makes room for the whole limit first, and most looks find a few bytes.
    limit = max(0, min(limit, os.fstat(descriptor).st_size - offset))
    if hasattr(os, "pread"):
        return os.pread(descriptor, limit, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, limit)


def _size(path: str) -> int:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def read_outputs(run: RunFolder, files: List[List[Any]]) -> Iterator[Tuple[int, bytes]]:
    """Index in ``files`` ([path below outputs, offset, size]) and next bytes up to that size, file after file.

    One that cannot be read gives nothing. Sorted paths are quickest: the folders stay open.
    """
    try:
        folders = Folders(run.outputs)
    except OSError:
        return
    with folders:
        for index, (path, offset, size) in enumerate(files):
            descriptor = open_beneath(folders, path)
            if descriptor is None:
                continue
            try:
                while offset < size:  # it may have grown since the run's end, when it was recorded
                    data = os.pread(descriptor, min(CHUNK, size - offset), offset)
                    if not data:
                        break
                    yield index, data
                    offset += len(data)
            except OSError:
                continue
            finally:
                os.close(descriptor)


def open_beneath(folders: Folders, path: str) -> Optional[int]:
    """A handle of a plain file, without following a link on the way to it; None if there is no such file."""
    folder, _, name = path.rpartition("/")
    if {"", ".", ".."}.intersection(path.split("/")) or "\0" in path:
        return None
    try:
        descriptor = os.open(name, _PLAIN, dir_fd=folders.open(folder))
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
