"""A preallocated file for the exit status, for use when the disk is full.

Its block is allocated before the start and overwritten in place, which works even if the disk is
full or the quota is exhausted.
"""

from __future__ import annotations

import binascii
import json
import os
import stat

from .shared.folder_tree import CLOEXEC, NOFOLLOW
from .shared.layout import RunFolder
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

SIZE = 4096  # one block, which is written completely or not at all
_MAGIC = b"MLW-EXIT-1"
# O_NONBLOCK: a script may have replaced the file with a FIFO, and opening it must not block.
_FLAGS = NOFOLLOW | CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_LONG_FIELDS = ("problem", "stopped", "unknown")  # may be long and are truncated to fit


def make_slot(run: RunFolder) -> None:
    """Allocate the block. It is not filled with zeros, because some file systems store zeros as a hole.

    The file is not synced, because that would delay the start and is not needed to allocate the block.
    """
    descriptor = os.open(run.slot, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
    try:
        _write(descriptor, b"-" * SIZE)
    finally:
        os.close(descriptor)


def fill_slot(run: RunFolder, record: Dict[str, Any]) -> None:
    """Overwrite the block with the record. Raise OSError if the write fails."""
    descriptor = os.open(run.slot, os.O_WRONLY | _FLAGS)
    try:
        _write(descriptor, _encode(record))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_slot(run: RunFolder) -> Optional[Dict[str, Any]]:
    """Return the record, or None if it is missing or its checksum does not match."""
    try:
        with open(os.open(run.slot, os.O_RDONLY | _FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            magic, checksum, text = file.read(SIZE).split(b"\n", 2)
        text = text.rstrip(b"\n")
        if magic != _MAGIC or int(checksum, 16) != binascii.crc32(text):
            return None
        record = parse_json(text)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _encode(record: Dict[str, Any]) -> bytes:
    text = json.dumps(record).encode("ascii")
    max_length = SIZE // 8
    while len(text) > SIZE - 64:
        shortened: Dict[str, Any] = {name: str(record[name])[:max_length] for name in _LONG_FIELDS if record.get(name)}
        if "failure" in record:
            shortened["failure"] = None  # its text is in "problem"
        text, max_length = json.dumps(dict(record, **shortened)).encode("ascii"), max_length // 2
    return b"\n".join((_MAGIC, b"%08x" % binascii.crc32(text), text)).ljust(SIZE, b"\n")


def _write(descriptor: int, block: bytes) -> None:
    if os.write(descriptor, block) != len(block):
        raise OSError(28, "No space left on device")
