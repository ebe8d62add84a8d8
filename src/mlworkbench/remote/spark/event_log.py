"""The events that Spark writes into a run's folder, line by line, as they come.

    eventlog_v2_APP/events_1_APP, events_2_APP, …    rolling, as we ask for it
    APP.inprogress, then APP                         one file, where the user's settings forbid rolling

The script can write there, too: no link is followed, nothing but plain files is read, and never much at once.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import islice

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

CHUNK = 1 << 20
LONGEST = 8 << 20  # bytes of a line; a longer one is passed over
KEPT = 128 << 20  # bytes of events that were read: the rest is deleted, or a run of days would fill the disk
_ENTRIES = 1000  # names in a folder that are looked at
_MOST = 100  # applications of one run
_ROLLING, _EVENTS, _UNFINISHED = "eventlog_v2_", "events_", ".inprogress"
_BEGINNINGS = ("app-", "local-", "application_", "spark-")  # of an application's id, by the kind of cluster
_OPEN = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = _OPEN | getattr(os, "O_DIRECTORY", 0)
SEES = os.open in os.supports_dir_fd and os.scandir in os.supports_fd


class EventLog:
    """``name``: of the application that is read now; a run may have several, one after the other."""

    def __init__(self, folder: str, known: Optional[Dict[str, Any]] = None) -> None:
        """``known``: as ``place`` told it."""
        known = known or {}
        self._folder = folder
        self.name: Optional[str] = known.get("name")
        self._number = int(known.get("number") or 0)
        self._at = int(known.get("at") or 0)
        self._skips = bool(known.get("skips"))
        self._done: List[str] = [str(one) for one in known.get("done") or ()]
        self.behind = False  # there was more than one look could take in

    def place(self) -> Dict[str, Any]:
        """How far it was read."""
        told = {"name": self.name, "number": self._number, "at": self._at, "skips": self._skips}
        return dict(told, done=self._done)

    def read(self) -> List[bytes]:
        """The next whole lines of one application; none if none exist yet."""
        self.behind = False
        if not SEES:
            return []
        folder = _open_folder(self._folder)
        if folder is None:
            return []
        try:
            lines = self._read_current(folder) if self.name else []
            if not lines and not self.behind:
                self._turn(folder)
            return lines
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                raise
            return []
        finally:
            os.close(folder)

    def _turn(self, folder: int) -> None:
        """To the next application, if the present one has nothing more to say and there is one."""
        known = set(self._done)
        known.add(self.name or "")
        new = [(when, name) for name, when in _applications(folder).items() if name not in known]
        if not new or len(self._done) >= _MOST:
            return
        if self.name:
            self._done.append(self.name)
        self.name, self._number, self._at, self._skips = min(new)[1], 0, 0, False
        self.behind = True

    def _read_current(self, folder: int) -> List[bytes]:
        inner = _open_folder(_ROLLING + str(self.name), folder)
        if inner is None:
            for name in (str(self.name) + _UNFINISHED, str(self.name)):
                lines = self._lines(folder, name)
                if lines is not None:
                    return lines
            return []
        try:
            return self._read_rolling(inner)
        finally:
            os.close(inner)

    def _read_rolling(self, folder: int) -> List[bytes]:
        files = self._files(folder)
        later = [number for number in sorted(files) if number > self._number]
        if self._number not in files:  # the first look, or it has vanished
            if not later:
                return []
            self._number, self._at, self._skips = later.pop(0), 0, False
        lines = self._lines(folder, files[self._number][0])
        if not lines and not self.behind and later:  # the next one was there before: nothing more comes
            self._number, self._at, self._skips, self.behind = later[0], 0, False, True
        return lines or []

    def _files(self, folder: int) -> Dict[int, Tuple[str, int]]:
        found: Dict[int, Tuple[str, int]] = {}
        end = "_" + str(self.name)
        with os.scandir(folder) as entries:
            for entry in islice(entries, _ENTRIES):
                number = entry.name[len(_EVENTS) : -len(end)]
                right = entry.name.startswith(_EVENTS) and entry.name.endswith(end)
                if right and number.isdigit() and len(number) < 10 and entry.is_file(follow_symlinks=False):
                    found[int(number)] = (entry.name, entry.stat(follow_symlinks=False).st_size)
        return found

    def _lines(self, folder: int, name: str) -> Optional[List[bytes]]:
        """Whole lines from where we are; None if there is no such file."""
        try:
            file = os.open(name, _OPEN, dir_fd=folder)
        except OSError:
            return None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return None
            return self._take(file, found.st_size - self._at)
        finally:
            os.close(file)

    def _take(self, file: int, left: int) -> List[bytes]:
        size = CHUNK
        while left > 0:
            data = os.pread(file, min(size, left), self._at)
            whole = data.rfind(b"\n") + 1
            if whole:
                self._at += whole
                self.behind = left > len(data)
                lines = data[:whole].split(b"\n")[:-1]
                lines, self._skips = lines[1:] if self._skips else lines, False
                return lines
            if len(data) >= LONGEST:
                self._at += len(data)
                self._skips = self.behind = True
                return []
            if size >= left:
                return []  # the rest of the line is still to come
            size *= 2
        return []

    def trim(self) -> None:
        """Delete files that were read. Whoever calls this has noted how far that was."""
        outer = _open_folder(self._folder) if SEES and self.name else None
        if outer is None:
            return
        try:
            inner = _open_folder(_ROLLING + str(self.name), outer)
            if inner is not None:
                try:
                    self._trim(inner)
                finally:
                    os.close(inner)
        finally:
            os.close(outer)

    def _trim(self, folder: int) -> None:
        kept = 0
        files = self._files(folder)
        for number in sorted(files, reverse=True):
            name, size = files[number]
            kept += size
            if number < self._number and kept > KEPT:
                os.unlink(name, dir_fd=folder)


def _open_folder(name: str, within: Optional[int] = None) -> Optional[int]:
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except OSError:
        return None


def _applications(folder: int) -> Dict[str, int]:
    """Names, and when something last came or went there: of several that are new, the oldest is read first."""
    found: Dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in islice(entries, _ENTRIES):
            name = entry.name
            if name.startswith(_ROLLING) and entry.is_dir(follow_symlinks=False):
                name = name[len(_ROLLING) :]
            elif name.startswith(_BEGINNINGS) and entry.is_file(follow_symlinks=False):
                name = name[: -len(_UNFINISHED)] if name.endswith(_UNFINISHED) else name
            else:
                continue
            if name and len(name) <= 200:
                found[name] = entry.stat(follow_symlinks=False).st_mtime_ns
    return found
