"""Writing that survives a crash: whole files by rename, event lines by append. Reading that bears a torn end."""

from __future__ import annotations

import errno
import json
import os
import sys
import time

from . import machine
from .exit_slot import make_slot
from .folder import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

RESERVE = 64 * 1024
MOST_PENDING = 1000  # events that wait for a disk


def write_whole(path: str, data: Dict[str, Any]) -> None:
    """The file is there whole or not at all, also after a power cut."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    write_part(part, data)
    try:
        os.replace(part, path)
    except OSError:
        os.unlink(part)
        raise
    machine.sync_folder(os.path.dirname(path))


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
        with open(path, "rb") as file:
            data = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and all(key in data for key in keys) else None


class Journal:
    """The events of one run. Only its supervisor writes, and there is one at a time (it holds the lock).

    Events that the disk refuses are kept in memory and written, in order, as soon as it takes them.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._seq = 0
        self._torn = False  # whether the file may end in the middle of a line
        self._pending: List[Tuple[bytes, bool]] = []
        self._complaint: Optional[int] = None
        self._descriptor = os.open(run.events, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.kinds: List[str] = []
        self._resume()

    def _resume(self) -> None:
        """Go on after a predecessor, which may have died in the middle of a line."""
        with open(self._run.events, "rb") as file:
            content = file.read()
        for line in content.splitlines():
            try:
                event = json.loads(line)
                self._seq = max(self._seq, int(event["seq"]))
                self.kinds.append(event["kind"])
            except (ValueError, KeyError, TypeError):
                continue
        self._torn = bool(content) and not content.endswith(b"\n")

    def add(self, kind: str, data: Dict[str, Any], lasting: bool = False) -> None:
        """Record an event. ``lasting``: it must survive a power cut; ``flush`` then tells whether it is on disk."""
        if len(self._pending) >= MOST_PENDING and not lasting:
            return
        self._seq += 1
        self.kinds.append(kind)
        line = json.dumps({"w": "sup", "seq": self._seq, "t": time.time(), "kind": kind, "data": data})
        self._pending.append((line.encode("ascii") + b"\n", lasting))
        try:
            self.flush()
        except OSError as error:
            if error.errno != self._complaint:
                self._complaint = error.errno
                log("cannot write the event journal, trying again with the next event: %s" % error)

    def flush(self) -> None:
        """Write the events that wait; raises OSError if the disk refuses one."""
        while self._pending:
            try:
                spare_room(self._run, lambda: self._append(*self._pending[0]))
            except OSError:
                self._reopen()
                raise
            del self._pending[0]

    def _reopen(self) -> None:
        """The file may have become another one: of a disk that was mounted again, of a server that was restarted."""
        try:
            descriptor = os.open(self._run.events, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return  # the one that we have is as good as any
        os.close(self._descriptor)
        self._descriptor = descriptor

    def close(self) -> None:
        """For whoever tells of many runs, one after the other."""
        os.close(self._descriptor)

    def _append(self, line: bytes, lasting: bool) -> None:
        size = os.fstat(self._descriptor).st_size
        try:
            _write_all(self._descriptor, b"\n" + line if self._torn else line)
            if lasting:
                os.fsync(self._descriptor)
        except OSError:
            self._cut(size)  # no half line before the next attempt
            raise
        self._torn = False

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            self._torn = True  # why the line could not be written says more


def keep_room(run: RunFolder) -> None:
    """Hold back a little disk, so that the ending can be written even when the script has filled it."""
    make_slot(run)
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
    except OSError:
        pass  # it is gone already, or the disk takes no changes
