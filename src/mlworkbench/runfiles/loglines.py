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
    """One line as it is in the file, without its end; of one that is too long, what its last carriage return left."""

    number: int  # from 0
    data: bytes
    cut: bool = False  # it goes on behind what is here


@dataclass(frozen=True)
class _Long:
    """A line that is not read from its beginning again whenever somebody looks at what is behind it."""

    number: int
    start: int
    left: int  # where that begins which the last carriage return left of it
    stop: int

    def read(self, file: _File) -> Line:
        start = self.start if self.stop - self.start <= LONGEST else self.left
        return Line(self.number, file.read(start, min(LONGEST, self.stop - start)), self.stop - start > LONGEST)


class _Open:
    """The line that is being written: where it begins, and where what a terminal would show of it."""

    def __init__(self, start: int) -> None:
        self.start = self.left = start
        self._returned = False  # its last byte is a carriage return; what follows begins anew

    def grow(self, piece: bytes, offset: int) -> None:
        if not piece:
            return
        end = len(piece.rstrip(b"\r"))
        last = piece.rfind(b"\r", 0, end)
        if last >= 0:
            self.left = offset + last + 1
        elif end and self._returned:
            self.left = offset
        self._returned = end < len(piece)

    def until(self, number: int, stop: int) -> _Long:
        return _Long(number, self.start, self.left, stop)


class LogLines:
    """The lines of one file that only grows. What was counted once is not counted again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._before = [0]  # newlines before each stride
        self._counted = 0  # bytes
        self._newlines = 0
        self._long: list[_Long] = []  # lines of more than a stride
        self._last = _Open(0)

    def count(self) -> int:
        """How many lines there are now; the last one may still lack its end."""
        with _File(self._path) as file:
            self._count(file)
        return self._newlines + (1 if self._counted > self._last.start else 0)

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
            return list(self._from(file, at, first, first + most))

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
            self._begin()
        for chunk in _chunks(file, self._counted, file.size):
            start = 0
            while start < len(chunk):
                stop = min(len(chunk), start + STRIDE - self._counted % STRIDE)
                self._take(chunk[start:stop])
                if self._counted % STRIDE == 0:
                    self._before.append(self._newlines)
                start = stop

    def _take(self, piece: bytes) -> None:
        """No more than a stride: so only the line that goes on from the one before can be a long one."""
        first = piece.find(b"\n")
        self._last.grow(piece if first < 0 else piece[:first], self._counted)
        if first >= 0:
            ended = self._last.until(self._newlines, self._counted + first)
            if ended.stop - ended.start > STRIDE:
                self._long.append(ended)
            begin = piece.rindex(b"\n") + 1
            self._last = _Open(self._counted + begin)
            self._last.grow(piece[begin:], self._counted + begin)
            self._newlines += piece.count(b"\n", first)
        self._counted += len(piece)

    def _from(self, file: _File, stride: int, first: int, end: int) -> Iterator[Line]:
        number, at = self._before[stride], stride * STRIDE
        for long in self._longs(number, end):
            yield from _lines(file, at, long.start, number, first, end)
            if long.number >= first:
                yield long.read(file)
            number, at = long.number + 1, long.stop + 1
        yield from _lines(file, at, self._counted, number, first, end)

    def _longs(self, first: int, end: int) -> list[_Long]:
        place = bisect_left(self._long, first, key=lambda one: one.number)
        found = self._long[place : bisect_left(self._long, end, key=lambda one: one.number)]
        if first <= self._newlines < end and self._counted - self._last.start > STRIDE:
            found.append(self._last.until(self._newlines, self._counted))
        return found


def _lines(file: _File, start: int, stop: int, number: int, first: int, end: int) -> Iterator[Line]:
    """None of them is a long one, except one that began before ``start`` and is passed over."""
    rest = b""
    for chunk in _chunks(file, start, stop):
        *whole, rest = (rest + chunk).split(b"\n")
        for data in whole:
            if number >= end:
                return
            if number >= first:
                yield _line(number, data)
            number += 1
    if rest and first <= number < end:
        yield _line(number, rest)


def _line(number: int, data: bytes) -> Line:
    if len(data) > LONGEST:
        open_ = _Open(0)
        open_.grow(data, 0)
        data = data[open_.left :]
    return Line(number, data[:LONGEST], len(data) > LONGEST)


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
