"""Read the event log that Spark writes to the run folder, line by line, while it grows.

    eventlog_v2_APP/events_1_APP, events_2_APP, …    rolling, as mlw configures it
    APP.inprogress, then APP                         one file if the user's settings disable rolling

The script can write there, too. Therefore, links are not followed, only regular files are read, and
reads are bounded.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import islice

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

CHUNK = 1 << 20
MAX_LINE = 8 << 20  # bytes; longer lines are skipped
MAX_KEPT = 128 << 20  # bytes of events to keep after reading: the logs of long runs would fill the disk
_MAX_ENTRIES = 1000  # maximum entries read per folder
_MAX_APPLICATIONS = 100  # per run
_ROLLING, _EVENTS, _UNFINISHED = "eventlog_v2_", "events_", ".inprogress"
_ID_PREFIXES = ("app-", "local-", "application_", "spark-")  # of application IDs; they depend on the cluster type
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER_FLAGS = _OPEN_FLAGS | getattr(os, "O_DIRECTORY", 0)
SUPPORTED = os.open in os.supports_dir_fd and os.scandir in os.supports_fd


class EventLog:
    """Reader of a run's event logs, one application at a time. ``name`` is the current application."""

    def __init__(self, folder: str, position: Optional[Dict[str, Any]] = None) -> None:
        """Continue from a position that the method ``position`` returned."""
        position = position or {}
        self._folder = folder
        self.name: Optional[str] = position.get("name")
        self._number = int(position.get("number") or 0)
        self._offset = int(position.get("at") or 0)
        self._skips_line = bool(position.get("skips"))
        self._finished: List[str] = [str(name) for name in position.get("done") or ()]
        self.has_more = False  # whether the last read stopped before the end

    def position(self) -> Dict[str, Any]:
        """Return the position up to which the log was read."""
        position = {"name": self.name, "number": self._number, "at": self._offset, "skips": self._skips_line}
        return dict(position, done=self._finished)

    def read(self) -> List[bytes]:
        """Return the next complete lines of one application, or an empty list if there are none."""
        self.has_more = False
        if not SUPPORTED:
            return []
        folder = _open_folder(self._folder)
        if folder is None:
            return []
        try:
            lines = self._read_current(folder) if self.name else []
            if not lines and not self.has_more:
                self._select_next(folder)
            return lines
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                raise
            return []
        finally:
            os.close(folder)

    def _select_next(self, folder: int) -> None:
        """Select the next application, if there is one."""
        read_names = set(self._finished)
        read_names.add(self.name or "")
        new = [(modified, name) for name, modified in _list_applications(folder).items() if name not in read_names]
        if not new or len(self._finished) >= _MAX_APPLICATIONS:
            return
        if self.name:
            self._finished.append(self.name)
        self.name, self._number, self._offset, self._skips_line = min(new)[1], 0, 0, False
        self.has_more = True

    def _read_current(self, folder: int) -> List[bytes]:
        inner = _open_folder(_ROLLING + str(self.name), folder)
        if inner is None:
            for name in (str(self.name) + _UNFINISHED, str(self.name)):
                lines = self._read_lines(folder, name)
                if lines is not None:
                    return lines
            return []
        try:
            return self._read_rolling(inner)
        finally:
            os.close(inner)

    def _read_rolling(self, folder: int) -> List[bytes]:
        files = self._list_files(folder)
        later = [number for number in sorted(files) if number > self._number]
        if self._number not in files:  # the first read, or the file no longer exists
            if not later:
                return []
            self._number, self._offset, self._skips_line = later.pop(0), 0, False
        lines = self._read_lines(folder, files[self._number][0])
        if not lines and not self.has_more and later:  # the next file existed before the read, so this one is complete
            self._number, self._offset, self._skips_line, self.has_more = later[0], 0, False, True
        return lines or []

    def _list_files(self, folder: int) -> Dict[int, Tuple[str, int]]:
        files: Dict[int, Tuple[str, int]] = {}
        suffix = "_" + str(self.name)
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                number = entry.name[len(_EVENTS) : -len(suffix)]
                matches = entry.name.startswith(_EVENTS) and entry.name.endswith(suffix)
                if matches and number.isdigit() and len(number) < 10 and entry.is_file(follow_symlinks=False):
                    files[int(number)] = (entry.name, entry.stat(follow_symlinks=False).st_size)
        return files

    def _read_lines(self, folder: int, name: str) -> Optional[List[bytes]]:
        """Return complete lines from the current offset, or None if the file does not exist."""
        try:
            file = os.open(name, _OPEN_FLAGS, dir_fd=folder)
        except OSError:
            return None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return None
            return self._read_chunk(file, status.st_size - self._offset)
        finally:
            os.close(file)

    def _read_chunk(self, file: int, left: int) -> List[bytes]:
        size = CHUNK
        while left > 0:
            data = os.pread(file, min(size, left), self._offset)
            end = data.rfind(b"\n") + 1
            if end:
                self._offset += end
                self.has_more = left > len(data)
                lines = data[:end].split(b"\n")[:-1]
                lines, self._skips_line = lines[1:] if self._skips_line else lines, False
                return lines
            if len(data) >= MAX_LINE:
                self._offset += len(data)
                self._skips_line = self.has_more = True
                return []
            if size >= left:
                return []  # the line is still incomplete
            size *= 2
        return []

    def trim(self) -> None:
        """Delete old files that have been read, if the log is too large. The caller must have saved the position."""
        outer = _open_folder(self._folder) if SUPPORTED and self.name else None
        if outer is None:
            return
        try:
            inner = _open_folder(_ROLLING + str(self.name), outer)
            if inner is not None:
                try:
                    self._trim_folder(inner)
                finally:
                    os.close(inner)
        finally:
            os.close(outer)

    def _trim_folder(self, folder: int) -> None:
        kept = 0
        files = self._list_files(folder)
        for number in sorted(files, reverse=True):
            name, size = files[number]
            kept += size
            if number < self._number and kept > MAX_KEPT:
                os.unlink(name, dir_fd=folder)


def _open_folder(name: str, within: Optional[int] = None) -> Optional[int]:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=within)
    except OSError:
        return None


def _list_applications(folder: int) -> Dict[str, int]:
    """Return the applications and their modification times. The oldest new one is read first."""
    applications: Dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in islice(entries, _MAX_ENTRIES):
            name = entry.name
            if name.startswith(_ROLLING) and entry.is_dir(follow_symlinks=False):
                name = name[len(_ROLLING) :]
            elif name.startswith(_ID_PREFIXES) and entry.is_file(follow_symlinks=False):
                name = name[: -len(_UNFINISHED)] if name.endswith(_UNFINISHED) else name
            else:
                continue
            if name and len(name) <= 200:
                applications[name] = entry.stat(follow_symlinks=False).st_mtime_ns
    return applications
