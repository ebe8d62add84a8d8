"""A small file made before the start of a run. It takes the exit status where no other file can be written.

Its block is allocated at the start and overwritten in place, which a full disk and a used-up quota allow.
"""

from __future__ import annotations

import binascii
import json
import os
import stat

from .shared.layout import RunFolder
from .shared.tree import CLOEXEC, NOFOLLOW
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

SIZE = 4096  # one block, so that the disk writes all of it or nothing
_MARK = b"MLW-EXIT-1"
# O_NONBLOCK: a script may have put a FIFO there, and opening it must not block.
_FLAGS = NOFOLLOW | CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_TEXTS = ("problem", "stopped", "unknown")  # may be long, and are cut to fit


def make_slot(run: RunFolder) -> None:
    """Allocate the block. Zeros would be enough for most file systems; some store them as a hole.

    It need not be on disk yet, which would cost time at the start: the space is taken all the same.
    """
    descriptor = os.open(run.slot, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
    try:
        _write(descriptor, b"-" * SIZE)
    finally:
        os.close(descriptor)


def fill_slot(run: RunFolder, record: Dict[str, Any]) -> None:
    """Overwrite the block with the record; raises OSError where the disk refuses that, too."""
    descriptor = os.open(run.slot, os.O_WRONLY | _FLAGS)
    try:
        _write(descriptor, _packed(record))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_slot(run: RunFolder) -> Optional[Dict[str, Any]]:
    """The record; None if there is none, or if its checksum does not match."""
    try:
        with open(os.open(run.slot, os.O_RDONLY | _FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            mark, checksum, text = file.read(SIZE).split(b"\n", 2)
        text = text.rstrip(b"\n")
        if mark != _MARK or int(checksum, 16) != binascii.crc32(text):
            return None
        record = parse_json(text)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _packed(record: Dict[str, Any]) -> bytes:
    text = json.dumps(record).encode("ascii")
    longest = SIZE // 8
    while len(text) > SIZE - 64:
        cut: Dict[str, Any] = {name: str(record[name])[:longest] for name in _TEXTS if record.get(name)}
        if "failure" in record:
            cut["failure"] = None  # its text is "problem"
        text, longest = json.dumps(dict(record, **cut)).encode("ascii"), longest // 2
    return b"\n".join((_MARK, b"%08x" % binascii.crc32(text), text)).ljust(SIZE, b"\n")


def _write(descriptor: int, block: bytes) -> None:
    if os.write(descriptor, block) != len(block):
        raise OSError(28, "No space left on device")
