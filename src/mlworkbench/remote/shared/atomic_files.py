"""Small files that are written whole or not at all, and read whatever a script has put in their place."""

from __future__ import annotations

import json
import os
import stat

from . import machine
from .tree import CLOEXEC
from .untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

_LARGEST = 64 * 1024 * 1024  # bytes of a JSON file of ours; a script may have put another in its place
# O_NONBLOCK: a script may also have put a FIFO there, and opening it must not block.
NONBLOCK = getattr(os, "O_NONBLOCK", 0) | CLOEXEC | getattr(os, "O_BINARY", 0)


def write_whole(path: str, data: Dict[str, Any]) -> None:
    """The file is there whole or not at all, also after a power cut."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    write_part(part, data)
    try:
        put_in_place(part, path)
    except OSError:
        os.unlink(part)
        raise
    machine.sync_folder(os.path.dirname(path))


def put_in_place(part: str, path: str) -> None:
    """Give a file its name. A folder that a script has put there is set aside; a rename would fail."""
    try:
        os.replace(part, path)
    except IsADirectoryError:
        set_aside(path)
        os.replace(part, path)


def write_note(path: str, data: Dict[str, Any]) -> None:
    """Whole or not at all for those who look; of no use after a power cut, and therefore not waited for."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(descriptor, json.dumps(data).encode("ascii"))
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
        write_all(descriptor, json.dumps(data).encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
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


def _read_small(path: str) -> bytes:
    """The content of a plain file; of what is too large only a part, which is no JSON."""
    with open(os.open(path, os.O_RDONLY | NONBLOCK), "rb") as file:
        return file.read(_LARGEST) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def touch(path: str) -> None:
    """Give a file the present time, whatever a script has made of it."""
    try:
        os.utime(path)
    except FileNotFoundError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | NONBLOCK, 0o600))


def set_aside(path: str) -> None:
    try:
        os.rename(path, "%s.%s.aside" % (path, os.urandom(8).hex()))
    except FileNotFoundError:
        pass
