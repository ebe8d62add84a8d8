"""A log as lines: any of ten million of them at once, and a search, without holding the log in memory.

A script can make its log a file of terabytes in no time (a sparse one). So the index has a maximum size, and both
indexing and searching stop after some seconds and go on with the next call.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from time import monotonic

from ..remote.shared.tree import NOFOLLOW

STRIDE = 256 * 1024  # bytes between two places whose line number is remembered
LONGEST = 64 * 1024  # bytes of a line that are shown
INDEXED = 4 * 1024**3  # bytes of a log that are indexed at most
TAIL = 256 * 1024  # bytes at the end of a log that are shown where they are not indexed
_ANSWER = 32 * 1024**2  # bytes of lines that are returned at once
_CHUNK = 1024 * 1024
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
class Found:
    """The result of a search."""

    lines: list[int]
    rest: int | None  # byte to go on from; None: all was searched


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
        self._size = 0  # bytes of the file, when it was counted last
        self._newlines = 0
        self._long: list[_Long] = []  # lines of more than a stride
        self._last = _Open(0)

    def count(self, seconds: float = inf) -> int:
        """Index what is new, and return the number of lines so far; the last one may still lack its end.

        After ``seconds`` it stops, but not before a chunk is done: calls in a row come to an end.
        """
        with _File(self._path) as file:
            self._count(file, monotonic() + seconds)
            self._size = file.size
        return self._newlines + (1 if self._counted > self._last.start else 0)

    @property
    def size(self) -> int:
        """Bytes that are indexed."""
        return self._counted

    @property
    def missing(self) -> int:
        """Bytes behind these that are not indexed, as of the last count."""
        return max(0, self._size - self._counted)

    @property
    def full(self) -> bool:
        """Whether the index has its maximum size: the next count adds nothing."""
        return self._counted >= INDEXED

    def lines(self, first: int, most: int) -> list[Line]:
        """At most this number of indexed lines, from this one on."""
        if first < 0 or most <= 0:
            return []
        found, size = [], 0
        with _File(self._path) as file:
            at = max(0, bisect_left(self._before, first) - 1)  # before it there are fewer newlines: it begins later
            for line in self._from(file, at, first, first + most):
                found.append(line)
                size += len(line.data)
                if size > _ANSWER:
                    break
        return found

    def tail(self) -> list[Line]:
        """The last lines of a log that is not indexed to its end. Their numbers count from 0."""
        if not self.missing:
            return []
        with _File(self._path) as file:
            start = max(self._counted, self._size - TAIL)
            data = file.read(start, self._size - start)
        if start > self._counted and b"\n" in data[:-1]:
            data = data.partition(b"\n")[2]  # a line that begins before
        return [_line(number, line) for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"))]

    def find(
        self, text: str, first: int = 0, most: int = 1000, case: bool = False, start: int = 0, seconds: float = inf
    ) -> Found:
        """Indexed lines that contain the text, from the line ``first`` and the byte ``start`` on."""
        wanted = text.encode("utf-8", "surrogateescape")
        if not wanted or b"\n" in wanted:
            return Found([], None)
        fold = bytes if case else bytes.lower
        found: dict[int, None] = {}
        stride = max(min(start // STRIDE, len(self._before) - 1), bisect_left(self._before, first) - 1, 0)
        at, end = stride * STRIDE, monotonic() + seconds
        number, rest = self._before[stride], b""  # newlines before ``rest``: it may hold the beginning of the text
        with _File(self._path) as file:
            for chunk in _chunks(file, at, self._counted):
                at += len(chunk)
                hay = fold(rest + chunk)
                found.update((line, None) for line in _lines_with(hay, fold(wanted), number) if line >= first)
                if len(found) >= most:
                    lines = list(found)[:most]
                    return Found(lines, self._start_of(lines[-1] + 1))
                if monotonic() >= end and at < self._counted:
                    return Found(list(found), (at - len(wanted)) // STRIDE * STRIDE)
                keep = max(0, len(hay) - len(wanted) + 1)
                number += hay.count(b"\n", 0, keep)
                rest = hay[keep:]
        return Found(list(found), None)

    def _start_of(self, line: int) -> int:
        """The last stride that begins before a line, in bytes."""
        return max(0, bisect_left(self._before, line) - 1) * STRIDE

    def _count(self, file: _File, end: float) -> None:
        if file.size < self._counted:  # another file in its place
            self._begin()
        for chunk in _chunks(file, self._counted, min(file.size, INDEXED)):
            start = 0
            while start < len(chunk):
                stop = min(len(chunk), start + STRIDE - self._counted % STRIDE)
                self._take(chunk[start:stop])
                if self._counted % STRIDE == 0:
                    self._before.append(self._newlines)
                start = stop
            if monotonic() >= end:
                return

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
        chunk = file.read(start, min(_CHUNK, stop - start))
        if not chunk:
            return
        start += len(chunk)
        yield chunk
