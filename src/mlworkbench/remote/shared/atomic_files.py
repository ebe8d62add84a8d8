"""Write small files atomically, and read them safely even if a script replaced them."""

from __future__ import annotations

import json
import os
import stat

from . import machine
from .folder_tree import CLOEXEC
from .untrusted_json import parse_json

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

_MAX_SIZE = 64 * 1024 * 1024  # bytes; a script may have replaced the file with a larger one
# O_NONBLOCK: opening must not block if a script has created a FIFO there.
NONBLOCK = getattr(os, "O_NONBLOCK", 0) | CLOEXEC | getattr(os, "O_BINARY", 0)


def write_atomic(path: str, data: Dict[str, Any]) -> None:
    """Write a JSON file atomically and durably: a power failure leaves the previous state or the complete new file."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    write_part(part, data)
    try:
        move_into_place(part, path)
    except OSError:
        os.unlink(part)
        raise
    machine.sync_folder(os.path.dirname(path))


def move_into_place(part: str, path: str) -> None:
    """Rename a file to its final name.

    A folder that a script created under that name is moved aside, because the rename would fail.
    """
    try:
        os.replace(part, path)
    except IsADirectoryError:
        move_aside(path)
        os.replace(part, path)


def write_unsynced(path: str, data: Dict[str, Any]) -> None:
    """Write a JSON file atomically but without fsync, for data that is useless after a power failure anyway."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(descriptor, json.dumps(data).encode("ascii"))
    finally:
        os.close(descriptor)
    os.replace(part, path)


def write_once(path: str, data: Dict[str, Any]) -> bool:
    """Write like ``write_atomic``, but only the first writer succeeds. Return whether this one was first."""
    part = "%s.%s.part" % (path, os.urandom(8).hex())
    write_part(part, data)
    try:
        os.link(part, path)
        is_first = True
    except FileExistsError:
        is_first = os.path.samefile(part, path)  # NFS may report this error although the link was created
    except OSError:  # a file system without hard links
        is_first = _create_file(path, data)
    os.unlink(part)
    machine.sync_folder(os.path.dirname(path))
    return is_first


def _create_file(path: str, data: Dict[str, Any]) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    _write_synced(descriptor, data)
    return True


def write_part(part: str, data: Dict[str, Any]) -> None:
    """Write the content to disk under a temporary name."""
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write_synced(descriptor, data)
    except OSError:
        os.unlink(part)  # repeated attempts on a full disk must not accumulate files
        raise


def _write_synced(descriptor: int, data: Dict[str, Any]) -> None:
    try:
        write_all(descriptor, json.dumps(data).encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes. A nearly full disk accepts only some of them; the next write raises the error."""
    while data:
        data = data[os.write(descriptor, data) :]


def read_json(path: str, *keys: str) -> Optional[Dict[str, Any]]:
    """Return the file's content, or None if it is missing, incomplete, or lacks one of the keys."""
    try:
        data = parse_json(_read_small(path))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and all(key in data for key in keys) else None


def _read_small(path: str) -> bytes:
    """Return the content of a regular file up to a maximum size, so the JSON of larger files is invalid."""
    with open(os.open(path, os.O_RDONLY | NONBLOCK), "rb") as file:
        return file.read(_MAX_SIZE) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def touch(path: str) -> None:
    """Set a file's modification time to now. Create the file if it is missing."""
    try:
        os.utime(path)
    except FileNotFoundError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | NONBLOCK, 0o600))


def move_aside(path: str) -> None:
    try:
        os.rename(path, "%s.%s.aside" % (path, os.urandom(8).hex()))
    except FileNotFoundError:
        pass
