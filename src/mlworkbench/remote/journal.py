"""The event journal of a run, with crash-safe appends and reads that tolerate a partial last line."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time

from .claim import require_newest
from .preallocated_exit import make_slot
from .shared.atomic_files import NONBLOCK, move_aside, write_all
from .shared.event_numbers import WRITER, check_seq
from .shared.folder_tree import NOFOLLOW
from .shared.layout import RunFolder
from .shared.metric_limits import MAX_LINE_LENGTH
from .shared.retry_causes import MAX_RETRIES
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

ATTEMPT_ENDED = "attempt_ended"  # kind of the event that ends every attempt but the last
RESERVE = 64 * 1024
MAX_PENDING = 1000  # maximum number of events waiting to be written
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
WRITE_REFUSED = (*NO_SPACE, errno.EROFS)  # the disk refuses writes, but the descriptor is usable
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | NOFOLLOW | NONBLOCK


class Journal:
    """The events of one run. Only the run's supervisor, which holds the lock, writes them.

    The run's script can damage the file, so each line is appended after all complete lines, where
    readers expect it. Events that cannot be written stay in memory and are written, in order, as soon
    as possible.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._seq = 0
        self._pending: List[Tuple[bytes, bool]] = []
        self._last_error: Optional[int] = None
        self._descriptor = _open_journal(run.events)
        self.kinds: List[str] = []  # kinds of the current attempt's events
        self.ended_attempts = 0
        self.log_start = 0  # size of the log when the current attempt started
        self._end = self._read_events(self._descriptor)  # offset after the last complete line
        self._attempt = run.at(max(run.attempt, self.ended_attempts + 1))

    def _read_events(self, descriptor: int) -> int:
        """Read the events of a predecessor, which may have died while writing a line.

        Return the length of the complete lines.
        """
        end = 0
        for lines in _read_whole_lines(descriptor, 0):
            end += len(lines)
            for line in lines.splitlines():
                try:
                    event = parse_json(line)
                    self._seq = max(self._seq, check_seq(event["seq"]))
                    self._note(event["kind"], event.get("data"))
                except (ValueError, KeyError, TypeError):
                    continue
        return end

    def has_ended(self) -> bool:
        """Return whether the ending is recorded. After a remount, another supervisor may have recorded it."""
        try:
            self._repair()
        except OSError:
            pass  # the file cannot be checked, but it cannot be written either
        return "finished" in self.kinds

    def add(self, kind: str, data: Dict[str, Any], durable: bool = False) -> None:
        """Record an event.

        ``durable``: the event must survive a power failure; ``flush`` raises an error if it is not on disk.
        """
        if len(self._pending) >= MAX_PENDING and not durable:
            return
        self._seq += 1
        self._note(kind, data)
        line = json.dumps({"w": WRITER, "seq": self._seq, "t": time.time(), "kind": kind, "data": data})
        self._pending.append((line.encode("ascii") + b"\n", durable))
        try:
            self.flush()
        except OSError as error:
            if error.errno != self._last_error:
                self._last_error = error.errno
                log("cannot write the event journal, retrying with the next event: %s" % error)

    def _note(self, kind: str, data: Any) -> None:
        if kind != ATTEMPT_ENDED:
            self.kinds.append(kind)
            return
        number, size = data["attempt"], data["log_size"]
        if type(number) is int and self.ended_attempts < number <= MAX_RETRIES:  # the script can write events, too
            self.kinds.clear()
            self.ended_attempts, self.log_start = number, size if type(size) is int and size > 0 else 0

    def flush(self) -> None:
        """Write the pending events. Raise OSError if a write fails."""
        while self._pending:
            try:
                write_with_reserve(self._run, lambda: self._append(*self._pending[0]))
            except OSError as error:
                if error.errno not in WRITE_REFUSED:  # the descriptor itself may be unusable
                    self._reopen_if_possible()
                raise
            del self._pending[0]

    def close(self) -> None:
        """Close the file, for a process that records events of many runs in turn."""
        os.close(self._descriptor)

    def _append(self, line: bytes, durable: bool) -> None:
        require_newest(self._attempt)
        self._repair()
        try:
            write_all(self._descriptor, line)
            if durable:
                os.fsync(self._descriptor)
        except OSError:
            self._truncate()  # remove a partial line before a retry
            raise
        self._end += len(line)

    def _truncate(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError:
            pass  # the write error is more useful, and the next attempt repairs the file first

    def _repair(self) -> None:
        """Repair damage caused by a script.

        Complete lines that it added are kept, because a client may have already read them.
        """
        open_status = os.fstat(self._descriptor)
        try:
            path_status = os.stat(self._run.events, follow_symlinks=False)
        except FileNotFoundError:
            path_status = None
        if path_status is not None and path_status.st_dev != open_status.st_dev:
            self._reopen()  # only a remount can change the device
        elif path_status is None or path_status.st_ino != open_status.st_ino:
            self._rewrite()
        size = os.fstat(self._descriptor).st_size
        if size > self._end:
            self._end += sum(map(len, _read_whole_lines(self._descriptor, self._end)))
            os.ftruncate(self._descriptor, self._end)
        elif size < self._end:
            missing = min(self._end - size, MAX_LINE_LENGTH)
            os.ftruncate(self._descriptor, self._end - missing)
            write_all(self._descriptor, b"\n" * missing)

    def _rewrite(self) -> None:
        """Write the lines of the open file to a new file and rename it into place."""
        temporary = "%s.%s.part" % (self._run.events, os.urandom(8).hex())
        new = os.open(temporary, _OPEN_FLAGS | os.O_EXCL, 0o600)
        try:
            for lines in _read_whole_lines(self._descriptor, 0):
                write_all(new, lines)
            move_aside(self._run.events)
            os.rename(temporary, self._run.events)
        except OSError:
            os.close(new)
            os.unlink(temporary)
            raise
        os.close(self._descriptor)
        self._descriptor = new

    def _reopen(self) -> None:
        """Open the file that is now at the journal's path, after a remount or a restart of the file server.

        The file may lack lines that were already read. New lines are appended after the offset where those
        lines ended.
        """
        new = os.open(self._run.events, _OPEN_FLAGS & ~os.O_CREAT)
        try:
            end = self._read_events(new)
            os.ftruncate(new, end)
        except OSError:
            os.close(new)
            raise
        os.close(self._descriptor)
        self._descriptor, self._end = new, max(self._end, end)

    def _reopen_if_possible(self) -> None:
        try:
            self._reopen()
        except OSError:
            pass  # keep the open file; the caller gets the write error


def _open_journal(path: str) -> int:
    try:
        descriptor = os.open(path, _OPEN_FLAGS, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # a folder, a link, a socket
            raise
    move_aside(path)
    return os.open(path, _OPEN_FLAGS, 0o600)


def _read_whole_lines(descriptor: int, offset: int) -> Iterator[bytes]:
    """Yield complete lines from ``offset``, up to a line that is too long for readers."""
    while True:
        os.lseek(descriptor, offset, os.SEEK_SET)
        data = os.read(descriptor, MAX_LINE_LENGTH)
        end = data.rfind(b"\n") + 1
        if not end:
            return
        yield data[:end]
        offset += end


def reserve_space(run: RunFolder) -> None:
    """Reserve disk space, so that the ending can be written even if the script fills the disk."""
    make_slot(run)
    descriptor = os.open(run.reserve, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(descriptor, b"\0" * RESERVE)
    finally:
        os.close(descriptor)


def write_with_reserve(run: RunFolder, write: Any) -> None:
    """Call ``write``. If the disk is full, release the reserve and call it again."""
    try:
        write()
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        release_reserve(run)
        write()


def log(text: str) -> None:
    """Log a message to supervisor.log, which is the stderr of this process."""
    try:
        sys.stderr.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text))
        sys.stderr.flush()
    except OSError:
        return  # disk full: the message cannot be logged


def release_reserve(run: RunFolder) -> None:
    try:
        os.unlink(run.reserve)
    except FileNotFoundError:
        pass
    except OSError as error:  # a script created a folder there, or the disk is read-only: nothing can be released
        log("cannot remove %s: %s" % (run.reserve, error))
