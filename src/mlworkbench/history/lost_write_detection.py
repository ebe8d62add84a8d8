"""Count the writes to the index in a separate file, to detect an index that has lost writes."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress

_SIZE = 29


class WriteCounter:
    """A counter that only grows. It may lag behind the index but is never ahead.

    A damaged file counts as 0.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> int:
        try:
            with open(self._path, "rb") as file:
                text = file.read(_SIZE + 1)
        except OSError:
            return 0
        number = text[:19]
        return int(number) if number.isdigit() and text == _line(int(number)) else 0

    def write(self, number: int) -> None:
        with suppress(OSError):  # the disk may be full; the index itself is complete
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            try:
                os.write(descriptor, _line(number))
            finally:
                os.close(descriptor)


def _line(number: int) -> bytes:
    text = b"%019d" % number
    return b"%s %08x\n" % (text, zlib.crc32(text))
