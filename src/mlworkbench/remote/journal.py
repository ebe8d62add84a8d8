"""Writing that survives a crash: whole files by rename, event lines by append. Reading that bears a torn end."""

from __future__ import annotations

import errno
import json
import os
import sys
import time

from . import machine
from .folder import RunFolder
from .untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

RESERVE = 64 * 1024
WRITER = "sup"  # of the events of every supervisor
MOST_EVENTS = 2**52


def write_whole(path: str, data: Dict[str, Any]) -> None:
    """The file is there whole or not at all, also after a power cut."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    write_part(part, data)
    os.replace(part, path)
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
            data = parse_json(file.read())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and all(key in data for key in keys) else None


def check_seq(seq: Any) -> int:
    """The number of an event. Raises ValueError for what no journal counts up to: the next number must be writable."""
    if type(seq) is not int or not 0 <= seq < MOST_EVENTS:
        raise ValueError("this is not the number of an event")
    return seq


class Journal:
    """The events of one run. Only its supervisor writes, and there is one at a time (it holds the lock)."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._seq = 0
        self._descriptor = os.open(run.events, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.kinds: List[str] = []
        self._resume()

    def _resume(self) -> None:
        """Go on after a predecessor, which may have died in the middle of a line."""
        with open(self._run.events, "rb") as file:
            content = file.read()
        for line in content.splitlines():
            try:
                event = parse_json(line)
                self._seq = max(self._seq, check_seq(event["seq"]))
                self.kinds.append(event["kind"])
            except (ValueError, KeyError, TypeError):
                continue
        if content and not content.endswith(b"\n"):
            _write_all(self._descriptor, b"\n")

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
        size = os.fstat(self._descriptor).st_size
        try:
            _write_all(self._descriptor, line)
        except OSError:
            os.ftruncate(self._descriptor, size)  # no half line before the next attempt
            raise
        if lasting:
            os.fsync(self._descriptor)


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
