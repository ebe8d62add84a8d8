"""Points → columns: what a picture of a given width needs, and no more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf, isfinite
from operator import le
from typing import NamedTuple

from .points import CHUNK, GROUP, SUMMARY_SIZE, Points, Summary, summaries, summarise

Span = tuple[float, float]


class Column(NamedTuple):
    """All points of one column of a picture: where it is, the least and the largest value, the latest by time.

    ``x`` is the least one of its points; in the last column the largest, so that a curve ends where its points do.
    """

    x: float
    lo: float
    hi: float
    last: float


@dataclass(frozen=True)
class Chunk:
    """A stretch of a series as it is stored; ``load`` fetches its points."""

    nr: int
    count: int
    stepped: int  # of its points have a step
    summary: bytes  # of the whole, then of each group
    load: Callable[[], Points]

    @cached_property
    def whole(self) -> Summary:
        return next(summaries(self.summary[:SUMMARY_SIZE]))


class Picture:
    """Columns that fill while points, or summaries of many, are put in."""

    def __init__(self, start: float, end: float, width: int) -> None:
        self.start, self.end = start, end
        self._width = max(1, width)
        self._range = float(end) - float(start)
        self._columns: dict[int, list[float]] = {}

    def column(self, x: float) -> int:
        """Rises with x: a stretch whose ends are in one column is in it as a whole."""
        if not 0 < self._range < inf:
            return 0
        return min(int((float(x) - self.start) / self._range * self._width), self._width - 1)

    def put(self, at: int, ends: Span, told: Sequence[float]) -> None:
        """Points from x to x. ``told``: least, largest, latest, and the latest one's time; NaN if none is finite.

        Of the same time, the one that is put later counts as the latest.
        """
        lo, hi, last, when = told
        known = self._columns.get(at)
        if known is None:
            self._columns[at] = [float(ends[0]), lo, hi, last, when, float(ends[1])]
            return
        known[0], known[5] = min(known[0], float(ends[0])), max(known[5], float(ends[1]))
        if lo != lo:
            return
        if known[1] != known[1]:
            known[1:5] = [lo, hi, last, when]
            return
        known[1], known[2] = min(known[1], lo), max(known[2], hi)
        if when >= known[4]:
            known[3:5] = [last, when]

    def columns(self) -> list[Column]:
        """Those that have a finite value."""
        kept = [told for _, told in sorted(self._columns.items()) if told[1] == told[1]]
        if kept:
            kept[-1][0] = kept[-1][5]
        return [Column(*told[:4]) for told in kept]


def draw(chunks: Sequence[Chunk], width: int, x: str, span: Span | None) -> list[Column]:
    """The chunks of a series, in the order of their points, as at most ``width`` columns."""
    axis = _Axis(x, ordinal=x == "step" and not has_steps(chunks))
    span = span or axis.span(chunks)
    if span is None or not span[0] <= span[1]:
        return []
    picture = Picture(*span, width)
    for chunk in chunks:
        axis.put_chunk(picture, chunk)
    return picture.columns()


def has_steps(chunks: Sequence[Chunk]) -> bool:
    """Whether steps tell where points lie: all points have one, and they are not all the same."""
    if any(chunk.stepped < chunk.count for chunk in chunks):
        return False
    return len({step for chunk in chunks for step in (chunk.whole.step_lo, chunk.whole.step_hi)}) > 1


def ends(chunks: Iterable[Chunk]) -> Span | None:
    """The least and the largest finite value."""
    told = [chunk.whole for chunk in chunks if chunk.whole.lo == chunk.whole.lo]
    return (min(one.lo for one in told), max(one.hi for one in told)) if told else None


def columns(xs: Iterable[float], ys: Iterable[float], width: int, span: Span | None = None) -> list[Column]:
    """Any numbers in that form, for instance a list that was logged as one value."""
    pairs = [(x, y) for x, y in zip(xs, ys, strict=False) if isfinite(x)]
    if not pairs:
        return []
    start, end = span or (min(x for x, _ in pairs), max(x for x, _ in pairs))
    picture = Picture(start, end, width)
    for at, (x, y) in enumerate(pairs):
        if start <= x <= end and isfinite(y):
            picture.put(picture.column(x), (x, x), (y, y, y, at))
    return picture.columns()


class _Axis:
    """What lies on the x axis: steps, times, or the numbers of the points where steps do not tell them apart."""

    def __init__(self, x: str, ordinal: bool) -> None:
        self._times = x == "time"
        self._ordinal = ordinal

    def span(self, chunks: Iterable[Chunk]) -> Span | None:
        found = [end for chunk in chunks for end in self._ends(chunk.whole, chunk.nr * CHUNK, chunk.count)]
        return (min(found), max(found)) if found else None

    def _ends(self, told: Summary, number: int, count: int) -> Span:
        if self._times:
            return told.time_lo, told.time_hi
        return (number, number + count - 1) if self._ordinal else (told.step_lo, told.step_hi)

    def put_chunk(self, picture: Picture, chunk: Chunk) -> None:
        """As a whole where it lies in one column; else by its groups; and those by their points."""
        number, points = chunk.nr * CHUNK, None
        if self._put(picture, chunk.whole, number, chunk.count):
            return
        for at, group in enumerate(summaries(chunk.summary[SUMMARY_SIZE:])):
            start = at * GROUP
            stop = min(start + GROUP, chunk.count)
            if not self._put(picture, group, number + start, stop - start):
                points = points or chunk.load()
                self._put_points(picture, points, number, start, stop)

    def _put(self, picture: Picture, told: Summary, number: int, count: int) -> bool:
        """Whether that is all there is to do for these points."""
        start, end = self._ends(told, number, count)
        if end < picture.start or start > picture.end:
            return True
        if start < picture.start or end > picture.end:
            return False
        at = picture.column(start)
        if at != picture.column(end):
            return False
        picture.put(at, (start, end), told[4:])
        return True

    def _put_points(self, picture: Picture, points: Points, number: int, start: int, stop: int) -> None:
        """By stretches that lie in one column each."""
        xs: Sequence[float]
        if self._times:
            xs = points.times[start:stop]
        else:
            xs = range(number + start, number + stop) if self._ordinal else points.steps[start:stop]
        for at, first, last in _stretches(picture, xs):
            part = xs[first:last]
            picture.put(at, (min(part), max(part)), summarise(points, start + first, start + last)[4:])


def _stretches(picture: Picture, xs: Sequence[float]) -> Iterator[tuple[int, int, int]]:
    """Neighbours that lie in one column: which one, the first of them, and the one behind the last."""
    if all(map(le, xs, xs[1:])):  # nearly always, and then a few of them tell where the others lie
        first, stop = bisect_left(xs, picture.start), bisect_right(xs, picture.end)
        while first < stop:
            at = picture.column(xs[first])
            last = bisect_right(xs, at, first, stop, key=picture.column)
            yield at, first, last
            first = last
        return
    places = [picture.column(x) if picture.start <= x <= picture.end else -1 for x in xs]
    for at, run in groupby(range(len(xs)), places.__getitem__):
        found = list(run)
        if at >= 0:
            yield at, found[0], found[-1] + 1
