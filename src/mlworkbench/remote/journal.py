"""Writing that survives a crash: whole files by rename, event lines by append. Reading that bears a torn end."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time

from . import machine
from .folder import RunFolder
from .metric_files import LONGEST_LINE
from .tree import CLOEXEC, NOFOLLOW
from .untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

RESERVE = 64 * 1024
WRITER = "sup"  # of the events of every supervisor
MOST_EVENTS = 2**52
_LARGEST = 64 * 1024 * 1024  # bytes of a JSON file of ours; a script may have put another in its place
# O_NONBLOCK: a script may also have put a FIFO there, and opening it must not block.
_NONBLOCK = getattr(os, "O_NONBLOCK", 0) | CLOEXEC | getattr(os, "O_BINARY", 0)
_JOURNAL = os.O_RDWR | os.O_CREAT | os.O_APPEND | NOFOLLOW | _NONBLOCK


def write_whole(path: str, data: Dict[str, Any]) -> None:
    """The file is there whole or not at all, also after a power cut."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    write_part(part, data)
    put_in_place(part, path)
    machine.sync_folder(os.path.dirname(path))


def put_in_place(part: str, path: str) -> None:
    """Give a file its name. A folder that a script has put there is set aside; a rename would fail."""
    try:
        os.replace(part, path)
    except IsADirectoryError:
        _set_aside(path)
        os.replace(part, path)


def write_note(path: str, data: Dict[str, Any]) -> None:
    """Whole or not at all for those who look; of no use after a power cut, and therefore not waited for."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write_all(descriptor, json.dumps(data).encode("ascii"))
    finally:
        os.close(descriptor)
    os.replace(part, path)


def write_first(path: str, data: Dict[str, Any]) -> bool:
    """Like write_whole, but only the first writer wins; tells whether this was it."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    write_part(part, data)
    try:
        os.link(part, path)
        won = True
    except FileExistsError:
        won = os.path.samefile(part, path)  # over NFS our own link may be answered so
    except OSError:  # a file system without hard links
        won = _create(path, data)
    os.unlink(part)
    machine.sync_folder(os.path.dirname(path))
    return won


def _create(path: str, data: Dict[str, Any]) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    _fill(descriptor, data)
    return True


def write_part(part: str, data: Dict[str, Any]) -> None:
    """The content on disk, under a name that does not count yet."""
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _fill(descriptor, data)
    except OSError:
        os.unlink(part)  # whoever tries again and again on a full disk must not leave one each time
        raise


def _fill(descriptor: int, data: Dict[str, Any]) -> None:
    try:
        _write_all(descriptor, json.dumps(data).encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    """A nearly full disk takes a part and says nothing; the rest then gives the error."""
    while data:
        data = data[os.write(descriptor, data) :]


def read_json(path: str, *keys: str) -> Optional[Dict[str, Any]]:
    """The file's content; None if it is not there, not whole, or lacks one of the keys."""
    try:
        data = parse_json(_read_small(path))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and all(key in data for key in keys) else None


def check_seq(seq: Any) -> int:
    """The number of an event. Raises ValueError for what no journal counts up to: the next number must be writable."""
    if type(seq) is not int or not 0 <= seq < MOST_EVENTS:
        raise ValueError("this is not the number of an event")
    return seq


def _read_small(path: str) -> bytes:
    """The content of a plain file; of what is too large only a part, which is no JSON."""
    with open(os.open(path, os.O_RDONLY | _NONBLOCK), "rb") as file:
        return file.read(_LARGEST) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def touch(path: str) -> None:
    """Give a file the present time, whatever a script has made of it."""
    try:
        os.utime(path)
    except FileNotFoundError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | _NONBLOCK, 0o600))


class Journal:
    """The events of one run. Only its supervisor writes, and there is one at a time (it holds the lock).

    But the run's script can damage the file. Each line is put where readers look for it: after all whole lines.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._seq = 0
        self._descriptor = _open_journal(run.events)
        self._end = 0  # of the whole lines
        self.kinds: List[str] = []
        self._resume()

    def _resume(self) -> None:
        """Go on after a predecessor, which may have died in the middle of a line."""
        for lines in _whole_lines(self._descriptor, 0):
            self._end += len(lines)
            for line in lines.splitlines():
                try:
                    event = parse_json(line)
                    self._seq = max(self._seq, check_seq(event["seq"]))
                    self.kinds.append(event["kind"])
                except (ValueError, KeyError, TypeError):
                    continue
        self._mend()

    def add(self, kind: str, data: Dict[str, Any], lasting: bool = False) -> None:
        """``lasting``: on disk before this returns. What else happened can be told again from the other files."""
        self._seq += 1
        self.kinds.append(kind)
        line = json.dumps({"w": WRITER, "seq": self._seq, "t": time.time(), "kind": kind, "data": data})
        spare_room(self._run, lambda: self._append(line.encode("ascii") + b"\n", lasting))

    def close(self) -> None:
        """For whoever tells of many runs, one after the other."""
        os.close(self._descriptor)

    def _append(self, line: bytes, lasting: bool) -> None:
        self._mend()
        try:
            _write_all(self._descriptor, line)
        except OSError:
            os.ftruncate(self._descriptor, self._end)  # no half line before the next attempt
            raise
        self._end += len(line)
        if lasting:
            os.fsync(self._descriptor)

    def _mend(self) -> None:
        """Undo what a script did to the file. Whole lines that it added stay: they may have been read already."""
        here = os.fstat(self._descriptor)
        try:
            there = os.stat(self._run.events, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            self._write_again()
        if here.st_size > self._end:
            self._end += sum(map(len, _whole_lines(self._descriptor, self._end)))
            os.ftruncate(self._descriptor, self._end)
        elif here.st_size < self._end:
            missing = min(self._end - here.st_size, LONGEST_LINE)
            os.ftruncate(self._descriptor, self._end - missing)
            _write_all(self._descriptor, b"\n" * missing)

    def _write_again(self) -> None:
        """The lines of the file that we hold, as a new one under the right name."""
        _set_aside(self._run.events)
        new = _open_journal(self._run.events)
        for lines in _whole_lines(self._descriptor, 0):
            _write_all(new, lines)
        os.close(self._descriptor)
        self._descriptor = new


def _open_journal(path: str) -> int:
    try:
        descriptor = os.open(path, _JOURNAL, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # a folder, a link, a socket
            raise
    _set_aside(path)
    return os.open(path, _JOURNAL, 0o600)


def _set_aside(path: str) -> None:
    try:
        os.rename(path, "%s.%s.aside" % (path, os.urandom(8).hex()))
    except FileNotFoundError:
        pass


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
    descriptor = os.open(run.reserve, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        _write_all(descriptor, b"\0" * RESERVE)
    finally:
        os.close(descriptor)


def spare_room(run: RunFolder, write: Any) -> None:
    """Write; on a full disk give the reserve back and write again."""
    try:
        write()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
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
    except OSError as error:  # a script has put a folder there: there is nothing to give back
        log("cannot remove %s: %s" % (run.reserve, error))
