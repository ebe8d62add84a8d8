"""A log as lines: any of ten million of them at once, and a search, without holding the log in memory."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from ..remote.tree import NOFOLLOW

STRIDE = 256 * 1024  # bytes between two places whose line number is remembered
LONGEST = 64 * 1024  # bytes of a line that are shown
_FLAGS = (
    os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
)


@dataclass(frozen=True)
class Line:
    """One line as it is in the file, without its end."""

    number: int  # from 0
    data: bytes
    cut: bool = False  # it is longer than what is here


class LogLines:
    """The lines of one file that only grows. What was counted once is not counted again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._before = [0]  # newlines before each stride
        self._counted = 0  # bytes
        self._newlines = 0
        self._ended = True  # the last counted byte is a newline, or there is none

    def count(self) -> int:
        """How many lines there are now; the last one may still lack its end."""
        with _File(self._path) as file:
            self._count(file)
        return self._newlines + (0 if self._ended else 1)

    @property
    def size(self) -> int:
        """Bytes, as far as they were counted."""
        return self._counted

    def lines(self, first: int, most: int) -> list[Line]:
        """At most so many lines from this one on."""
        if first < 0 or most <= 0:
            return []
        with _File(self._path) as file:
            self._count(file)
            at = max(0, bisect_left(self._before, first) - 1)  # before it there are fewer newlines: it begins later
            return list(self._from(file, at, first, most))

    def find(self, text: str, first: int = 0, most: int = 1000, case: bool = False) -> list[int]:
        """The numbers of the lines that have the text in them, from this line on."""
        wanted = text.encode("utf-8", "surrogateescape")
        if not wanted or b"\n" in wanted:
            return []
        fold = bytes if case else bytes.lower
        found: list[int] = []
        with _File(self._path) as file:
            self._count(file)
            number, rest = 0, b""  # the newlines before ``rest``, which may hold the beginning of what is sought
            for chunk in _chunks(file, 0, self._counted):
                hay = fold(rest + chunk)
                found += [at for at in _lines_with(hay, fold(wanted), number) if at >= first]
                keep = max(0, len(hay) - len(wanted) + 1)
                number += hay.count(b"\n", 0, keep)
                rest = hay[keep:]
                if len(found) > most:
                    break
        return list(dict.fromkeys(found))[:most]

    def _count(self, file: _File) -> None:
        if file.size < self._counted:  # another file in its place
            self._before, self._counted, self._newlines, self._ended = [0], 0, 0, True
        for chunk in _chunks(file, self._counted, file.size):
            start = 0
            while start < len(chunk):
                stop = min(len(chunk), start + STRIDE - self._counted % STRIDE)
                self._newlines += chunk.count(b"\n", start, stop)
                self._counted += stop - start
                if self._counted % STRIDE == 0:
                    self._before.append(self._newlines)
                start = stop
            self._ended = chunk.endswith(b"\n")

    def _from(self, file: _File, stride: int, first: int, most: int) -> Iterator[Line]:
        number = self._before[stride]
        rest, size = b"", 0
        for chunk in _chunks(file, stride * STRIDE, self._counted):
            lines = chunk.split(b"\n")
            for at, piece in enumerate(lines):
                if at:
                    if number >= first:
                        yield Line(number, rest, size > len(rest))
                    number, rest, size = number + 1, b"", 0
                    if number >= first + most:
                        return
                size += len(piece)
                rest += piece[: max(0, LONGEST - len(rest))]
        if number >= first and (size or not self._ended):
            yield Line(number, rest, size > len(rest))


def _lines_with(hay: bytes, wanted: bytes, number: int) -> Iterator[int]:
    """The numbers of the lines in which it is found; ``number`` is that of the first one."""
    counted, at = 0, hay.find(wanted)
    while at >= 0:
        number += hay.count(b"\n", counted, at)
        counted = at
        yield number
        end = hay.find(b"\n", at)  # one hit in a line is enough
        at = hay.find(wanted, end) if end >= 0 else -1


class _File:
    """Open for reading; nothing at all if it is not there."""

    def __init__(self, path: str) -> None:
        try:
            self._descriptor: int | None = os.open(path, _FLAGS)
        except FileNotFoundError:
            self._descriptor = None
        self.size = 0 if self._descriptor is None else os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        if self._descriptor is None:
            return b""
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        return os.read(self._descriptor, size)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def _chunks(file: _File, start: int, stop: int) -> Iterator[bytes]:
    while start < stop:
        chunk = file.read(start, min(1024 * 1024, stop - start))
        if not chunk:
            return
        start += len(chunk)
        yield chunk
