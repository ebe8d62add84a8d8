"""Writing that survives a crash: whole files by rename, event lines by append. Reading that bears a torn end."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time

from .exit_slot import make_slot
from .shared.events import WRITER, check_seq
from .shared.files import NONBLOCK, set_aside, write_all
from .shared.layout import RunFolder
from .shared.metric_files import LONGEST_LINE
from .shared.tree import NOFOLLOW
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

RESERVE = 64 * 1024
MOST_PENDING = 1000  # events that wait for a disk
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (*NO_SPACE, errno.EROFS)  # only a disk says so: never what is read from it
_JOURNAL = os.O_RDWR | os.O_CREAT | os.O_APPEND | NOFOLLOW | NONBLOCK


class Journal:
    """The events of one run. Only its supervisor writes, and there is one at a time (it holds the lock).

    But the run's script can damage the file. Each line is put where readers look for it: after all whole lines.
    Events that the disk refuses are kept in memory and written, in order, as soon as it takes them.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._seq = 0
        self._pending: List[Tuple[bytes, bool]] = []
        self._complaint: Optional[int] = None
        self._descriptor = _open_journal(run.events)
        self.kinds: List[str] = []
        self._end = self._read_events(self._descriptor)  # of the whole lines

    def _read_events(self, descriptor: int) -> int:
        """Go on after a predecessor, which may have died in the middle of a line; the length of the whole ones."""
        end = 0
        for lines in _whole_lines(descriptor, 0):
            end += len(lines)
            for line in lines.splitlines():
                try:
                    event = parse_json(line)
                    self._seq = max(self._seq, check_seq(event["seq"]))
                    self.kinds.append(event["kind"])
                except (ValueError, KeyError, TypeError):
                    continue
        return end

    def has_ended(self) -> bool:
        """Whether the end is on record. On a disk that was mounted again, another supervisor may have written it."""
        try:
            self._mend()
        except OSError:
            pass  # then it cannot be known, and nothing can be written either
        return "finished" in self.kinds

    def add(self, kind: str, data: Dict[str, Any], lasting: bool = False) -> None:
        """Record an event. ``lasting``: it must survive a power cut; ``flush`` then tells whether it is on disk."""
        if len(self._pending) >= MOST_PENDING and not lasting:
            return
        self._seq += 1
        self.kinds.append(kind)
        line = json.dumps({"w": WRITER, "seq": self._seq, "t": time.time(), "kind": kind, "data": data})
        self._pending.append((line.encode("ascii") + b"\n", lasting))
        try:
            self.flush()
        except OSError as error:
            if error.errno != self._complaint:
                self._complaint = error.errno
                log("cannot write the event journal, retrying with the next event: %s" % error)

    def flush(self) -> None:
        """Write the events that wait; raises OSError if the disk refuses one."""
        while self._pending:
            try:
                spare_room(self._run, lambda: self._append(*self._pending[0]))
            except OSError as error:
                if error.errno not in REFUSED:  # the descriptor itself may be of no use any more
                    self._reopen_if_possible()
                raise
            del self._pending[0]

    def close(self) -> None:
        """For whoever tells of many runs, one after the other."""
        os.close(self._descriptor)

    def _append(self, line: bytes, lasting: bool) -> None:
        self._mend()
        try:
            write_all(self._descriptor, line)
            if lasting:
                os.fsync(self._descriptor)
        except OSError:
            self._cut()  # no half line before the next attempt
            raise
        self._end += len(line)

    def _cut(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError:
            pass  # why the line could not be written says more, and the next attempt mends the file first

    def _mend(self) -> None:
        """Undo what a script did to the file. Whole lines that it added stay: they may have been read already."""
        here = os.fstat(self._descriptor)
        try:
            there = os.stat(self._run.events, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        if there is not None and there.st_dev != here.st_dev:
            self._reopen()  # a disk was mounted again: no script can do that
        elif there is None or there.st_ino != here.st_ino:
            self._write_again()
        size = os.fstat(self._descriptor).st_size
        if size > self._end:
            self._end += sum(map(len, _whole_lines(self._descriptor, self._end)))
            os.ftruncate(self._descriptor, self._end)
        elif size < self._end:
            missing = min(self._end - size, LONGEST_LINE)
            os.ftruncate(self._descriptor, self._end - missing)
            write_all(self._descriptor, b"\n" * missing)

    def _write_again(self) -> None:
        """The lines of the file that we hold, as a new one under the right name: whole, or not at all."""
        part = "%s.%s.part" % (self._run.events, os.urandom(8).hex())
        new = os.open(part, _JOURNAL | os.O_EXCL, 0o600)
        try:
            for lines in _whole_lines(self._descriptor, 0):
                write_all(new, lines)
            set_aside(self._run.events)
            os.rename(part, self._run.events)
        except OSError:
            os.close(new)
            os.unlink(part)
            raise
        os.close(self._descriptor)
        self._descriptor = new

    def _reopen(self) -> None:
        """Go on with the file that has the name now: of a disk that was mounted again, of a server that was restarted.

        It may lack lines that were read already: what follows goes behind the place where they ended.
        """
        new = os.open(self._run.events, _JOURNAL & ~os.O_CREAT)
        try:
            whole = self._read_events(new)
            os.ftruncate(new, whole)
        except OSError:
            os.close(new)
            raise
        os.close(self._descriptor)
        self._descriptor, self._end = new, max(self._end, whole)

    def _reopen_if_possible(self) -> None:
        try:
            self._reopen()
        except OSError:
            pass  # the file that we have is as good as any; why it refuses the line is what the caller hears


def _open_journal(path: str) -> int:
    try:
        descriptor = os.open(path, _JOURNAL, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # a folder, a link, a socket
            raise
    set_aside(path)
    return os.open(path, _JOURNAL, 0o600)


def _whole_lines(descriptor: int, at: int) -> Iterator[bytes]:
    """Whole lines from ``at`` on, up to a line that is too long for any reader."""
    while True:
        os.lseek(descriptor, at, os.SEEK_SET)
        data = os.read(descriptor, LONGEST_LINE)
        end = data.rfind(b"\n") + 1
        if not end:
            return
        yield data[:end]
        at += end


def keep_room(run: RunFolder) -> None:
    """Hold back a little disk, so that the ending can be written even when the script has filled it."""
    make_slot(run)
    descriptor = os.open(run.reserve, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(descriptor, b"\0" * RESERVE)
    finally:
        os.close(descriptor)


def spare_room(run: RunFolder, write: Any) -> None:
    """Write; on a full disk give the reserve back and write again."""
    try:
        write()
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        drop_room(run)
        write()


def log(text: str) -> None:
    """Our own troubles go to supervisor.log, which is our stderr."""
    try:
        sys.stderr.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text))
        sys.stderr.flush()
    except OSError:
        return  # a full disk: there is nobody left to tell


def drop_room(run: RunFolder) -> None:
    try:
        os.unlink(run.reserve)
    except FileNotFoundError:
        pass
    except OSError as error:  # a script has put a folder there, or the disk takes no changes: nothing can be given back
        log("cannot remove %s: %s" % (run.reserve, error))
