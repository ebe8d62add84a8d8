"""Line access and search in large logs, without loading them into memory.

A script can instantly create a log of several terabytes as a sparse file, so the index has a
maximum size. Indexing and searching stop after a few seconds and continue with the next call.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from time import monotonic

from ..remote.shared.folder_tree import NOFOLLOW

STRIDE = 256 * 1024  # bytes between offsets with a recorded line number
MAX_LINE_BYTES = 64 * 1024  # maximum bytes shown per line
MAX_INDEXED_BYTES = 4 * 1024**3  # maximum number of indexed bytes
TAIL_BYTES = 256 * 1024  # bytes shown from the end of a partly indexed log
_MAX_RESULT_BYTES = 32 * 1024**2  # maximum bytes of lines per call
_CHUNK = 1024 * 1024
_FLAGS = (
    os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
)


@dataclass(frozen=True)
class Line:
    """A line without its newline, or the part after the last carriage return of a long line."""

    number: int  # from 0
    data: bytes
    cut: bool = False  # truncated


@dataclass(frozen=True)
class SearchResult:
    """Result of a search."""

    lines: list[int]
    rest: int | None  # offset to continue from; None if finished


@dataclass(frozen=True)
class _LongLine:
    """A long line with recorded offsets, so that it need not be scanned again to read later lines."""

    number: int
    start: int
    visible_start: int  # start of the part after the last carriage return
    stop: int

    def read(self, file: _File) -> Line:
        start = self.start if self.stop - self.start <= MAX_LINE_BYTES else self.visible_start
        return Line(
            self.number, file.read(start, min(MAX_LINE_BYTES, self.stop - start)), self.stop - start > MAX_LINE_BYTES
        )


class _CurrentLine:
    """The incomplete last line, with its start and the start of the part that a terminal would show."""

    def __init__(self, start: int) -> None:
        self.start = self.visible_start = start
        self._returned = False  # whether the line ends with a carriage return: the next bytes replace it

    def grow(self, piece: bytes, offset: int) -> None:
        if not piece:
            return
        end = len(piece.rstrip(b"\r"))
        last = piece.rfind(b"\r", 0, end)
        if last >= 0:
            self.visible_start = offset + last + 1
        elif end and self._returned:
            self.visible_start = offset
        self._returned = end < len(piece)

    def finish(self, number: int, stop: int) -> _LongLine:
        return _LongLine(number, self.start, self.visible_start, stop)


class LogLines:
    """Lines of an append-only file. Each part is indexed only once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._reset()

    def _reset(self) -> None:
        self._before = [0]  # number of newlines before each stride
        self._counted = 0  # bytes indexed
        self._size = 0  # file size at the last count
        self._newlines = 0
        self._long_lines: list[_LongLine] = []  # lines longer than a stride
        self._current = _CurrentLine(0)

    def count(self, seconds: float = inf) -> int:
        """Index new content and return the number of lines. The last one may be incomplete.

        Indexing stops after ``seconds``, but covers at least one chunk, so that repeated calls finish.
        """
        with _File(self._path) as file:
            self._count(file, monotonic() + seconds)
            self._size = file.size
        return self._newlines + (1 if self._counted > self._current.start else 0)

    @property
    def size(self) -> int:
        """Number of indexed bytes."""
        return self._counted

    @property
    def missing(self) -> int:
        """Number of bytes not indexed at the last count."""
        return max(0, self._size - self._counted)

    @property
    def full(self) -> bool:
        """Whether the index has reached its maximum size, so that the next count adds nothing."""
        return self._counted >= MAX_INDEXED_BYTES

    def lines(self, first: int, most: int) -> list[Line]:
        """Return up to ``most`` indexed lines, starting at line ``first``."""
        if first < 0 or most <= 0:
            return []
        lines, size = [], 0
        with _File(self._path) as file:
            # Fewer than ``first`` newlines precede this stride, so line ``first`` starts later.
            at = max(0, bisect_left(self._before, first) - 1)
            for line in self._lines_from(file, at, first, first + most):
                lines.append(line)
                size += len(line.data)
                if size > _MAX_RESULT_BYTES:
                    break
        return lines

    def tail(self) -> list[Line]:
        """Return the last lines of a log that is only partly indexed, numbered from 0."""
        if not self.missing:
            return []
        with _File(self._path) as file:
            start = max(self._counted, self._size - TAIL_BYTES)
            data = file.read(start, self._size - start)
        if start > self._counted and b"\n" in data[:-1]:
            data = data.partition(b"\n")[2]  # drop the end of a line that starts earlier
        return [_make_line(number, line) for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"))]

    def find(
        self, text: str, first: int = 0, most: int = 1000, case: bool = False, start: int = 0, seconds: float = inf
    ) -> SearchResult:
        """Return indexed lines that contain the text, from line ``first`` and offset ``start`` on."""
        pattern = text.encode("utf-8", "surrogateescape")
        if not pattern or b"\n" in pattern:
            return SearchResult([], None)
        fold = bytes if case else bytes.lower
        matches: dict[int, None] = {}
        stride = max(min(start // STRIDE, len(self._before) - 1), bisect_left(self._before, first) - 1, 0)
        offset, deadline = stride * STRIDE, monotonic() + seconds
        number, rest = self._before[stride], b""  # newlines before ``rest``, which may contain the start of a match
        with _File(self._path) as file:
            for chunk in _read_chunks(file, offset, self._counted):
                offset += len(chunk)
                text_bytes = fold(rest + chunk)
                matches.update(
                    (line, None) for line in _matching_lines(text_bytes, fold(pattern), number) if line >= first
                )
                if len(matches) >= most:
                    lines = list(matches)[:most]
                    return SearchResult(lines, self._stride_before(lines[-1] + 1))
                if monotonic() >= deadline and offset < self._counted:
                    return SearchResult(list(matches), (offset - len(pattern)) // STRIDE * STRIDE)
                keep = max(0, len(text_bytes) - len(pattern) + 1)
                number += text_bytes.count(b"\n", 0, keep)
                rest = text_bytes[keep:]
        return SearchResult(list(matches), None)

    def _stride_before(self, line: int) -> int:
        """Return the offset of the last stride that starts before a line."""
        return max(0, bisect_left(self._before, line) - 1) * STRIDE

    def _count(self, file: _File, deadline: float) -> None:
        if file.size < self._counted:  # the file was replaced by a shorter one
            self._reset()
        for chunk in _read_chunks(file, self._counted, min(file.size, MAX_INDEXED_BYTES)):
            start = 0
            while start < len(chunk):
                stop = min(len(chunk), start + STRIDE - self._counted % STRIDE)
                self._index(chunk[start:stop])
                if self._counted % STRIDE == 0:
                    self._before.append(self._newlines)
                start = stop
            if monotonic() >= deadline:
                return

    def _index(self, piece: bytes) -> None:
        """Index at most one stride, so that only a line continued from an earlier stride can be long."""
        first = piece.find(b"\n")
        self._current.grow(piece if first < 0 else piece[:first], self._counted)
        if first >= 0:
            finished = self._current.finish(self._newlines, self._counted + first)
            if finished.stop - finished.start > STRIDE:
                self._long_lines.append(finished)
            begin = piece.rindex(b"\n") + 1
            self._current = _CurrentLine(self._counted + begin)
            self._current.grow(piece[begin:], self._counted + begin)
            self._newlines += piece.count(b"\n", first)
        self._counted += len(piece)

    def _lines_from(self, file: _File, stride: int, first: int, end: int) -> Iterator[Line]:
        number, offset = self._before[stride], stride * STRIDE
        for long in self._long_lines_between(number, end):
            yield from _read_lines(file, offset, long.start, number, first, end)
            if long.number >= first:
                yield long.read(file)
            number, offset = long.number + 1, long.stop + 1
        yield from _read_lines(file, offset, self._counted, number, first, end)

    def _long_lines_between(self, first: int, end: int) -> list[_LongLine]:
        start = bisect_left(self._long_lines, first, key=lambda line: line.number)
        lines = self._long_lines[start : bisect_left(self._long_lines, end, key=lambda line: line.number)]
        if first <= self._newlines < end and self._counted - self._current.start > STRIDE:
            lines.append(self._current.finish(self._newlines, self._counted))
        return lines


def _read_lines(file: _File, start: int, stop: int, number: int, first: int, end: int) -> Iterator[Line]:
    """Yield the lines of a section from ``first`` up to ``end``; ``number`` is the section's first line number."""
    rest = b""
    for chunk in _read_chunks(file, start, stop):
        *complete, rest = (rest + chunk).split(b"\n")
        for data in complete:
            if number >= end:
                return
            if number >= first:
                yield _make_line(number, data)
            number += 1
    if rest and first <= number < end:
        yield _make_line(number, rest)


def _make_line(number: int, data: bytes) -> Line:
    if len(data) > MAX_LINE_BYTES:
        current = _CurrentLine(0)
        current.grow(data, 0)
        data = data[current.visible_start :]
    return Line(number, data[:MAX_LINE_BYTES], len(data) > MAX_LINE_BYTES)


def _matching_lines(data: bytes, pattern: bytes, number: int) -> Iterator[int]:
    """Yield the numbers of lines that contain the pattern; the first line has number ``number``."""
    counted, at = 0, data.find(pattern)
    while at >= 0:
        number += data.count(b"\n", counted, at)
        counted = at
        yield number
        end = data.find(b"\n", at)  # report each line only once
        at = data.find(pattern, end) if end >= 0 else -1


class _File:
    """A file opened for reading; treated as empty if it does not exist."""

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


def _read_chunks(file: _File, start: int, stop: int) -> Iterator[bytes]:
    while start < stop:
        chunk = file.read(start, min(_CHUNK, stop - start))
        if not chunk:
            return
        start += len(chunk)
        yield chunk
