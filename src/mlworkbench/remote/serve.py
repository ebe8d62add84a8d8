"""Bytes of a run for those who follow it: what is new, one file, the outputs. No link in a run folder is followed."""

from __future__ import annotations

import os
import stat
import time
from contextlib import contextmanager

from . import machine
from .folder import RunFolder
from .frames import CHUNK
from .pending_ending import why_pending
from .tree import FOLDER, NOFOLLOW, Folders

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

FILES = ("log", "build.log", "events.jsonl", "outputs.json", "supervisor.log", "exit.json", "gpu.jsonl", "effort.jsonl")
EVENTS = "events.jsonl"
QUICK, SLOW, QUICK_FOR = 0.004, 0.05, 1.0  # seconds between two looks, and for how long the first kind
MOST_METRICS = 10000  # files of one run; a script could make any number
MOST = 64 * 1024 * 1024  # bytes in one answer
_PLAIN = os.O_RDONLY | NOFOLLOW
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # not all are on all systems
    _PLAIN |= getattr(os, _name, 0)


class News:
    """What is new in one run folder since some offsets."""

    def __init__(self, run: RunFolder, offsets: Dict[str, int]) -> None:
        for name in offsets:
            check_name(name)
        self._run = run
        self._offsets = offsets

    def standing(self) -> Dict[str, bool]:
        run = self._run
        # The lock first: what a supervisor wrote before it let go of the lock must not be missed.
        supervised = machine.is_locked(run.lock)
        return {"exists": os.path.exists(run.spec), "claimed": os.path.exists(run.owner), "supervised": supervised}

    def pending(self) -> str:
        """Why the ending of the run, which is over, cannot be written."""
        return why_pending(self._run)

    def wait(self, seconds: float, pause: Callable[[float], bool]) -> None:
        """Until something is new, ``pause`` says that we are wanted, or the time is over."""
        begun = time.monotonic()
        while not self._any() and all(self.standing().values()):
            passed = time.monotonic() - begun
            if passed >= seconds or pause(min(QUICK if passed < QUICK_FOR else SLOW, seconds - passed)):
                return

    def _any(self) -> bool:
        folder = self._run.path
        if any(_size(os.path.join(folder, name)) > offset for name, offset in self._offsets.items()):
            return True
        return bool(self._metrics())

    def _metrics(self) -> List[str]:
        """Metric files that hold something and were not asked for: nobody knows of them yet."""
        found: List[str] = []
        try:
            with _listing(self._run.metrics) as entries:
                for entry in entries:
                    name = "metrics/" + entry.name
                    if name not in self._offsets and entry.stat(follow_symlinks=False).st_size:
                        found.append(name)
                    if len(found) >= MOST_METRICS:
                        break
        except OSError:
            pass  # no metrics yet, something else in their place, or one of them has just gone
        return found

    def parts(self, limit: int) -> Iterator[Tuple[str, bytes]]:
        """Name and new bytes of each file with any. The events come last: they may tell the end of the run.

        They were read first: whatever is there when the end is told must not be missed.
        """
        folder = self._run.path
        asked = dict(self._offsets)
        events = read_plain(os.path.join(folder, EVENTS), asked.pop(EVENTS), limit) if EVENTS in asked else b""
        asked.update((name, 0) for name in self._metrics())
        room = MOST
        for name, offset in asked.items():
            if room <= 0:
                return  # and no word of an end: the rest comes next time
            data = read_plain(os.path.join(folder, name), offset, limit)
            room -= len(data)
            if data:
                yield name, data
        if events:
            yield EVENTS, events


@contextmanager
def _listing(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """What is in a folder, unless it is a link to one."""
    if os.name == "nt":  # cannot list by handle
        with os.scandir(folder) as entries:
            yield entries
        return
    handle = os.open(folder, FOLDER | NOFOLLOW)
    try:
        with os.scandir(handle) as entries:
            yield entries
    finally:
        os.close(handle)


def check_name(name: str) -> None:
    """Only files that are meant to be read from outside."""
    folder, _, rest = name.partition("/")
    if name not in FILES and (folder != "metrics" or not rest or "/" in rest or rest in (".", "..") or "\0" in rest):
        raise ValueError("%a is not a file to be read" % name)


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
