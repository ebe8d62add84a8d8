"""Reduce points to the columns of a chart with a given width."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf, isfinite
from operator import le
from typing import NamedTuple

from .points import CHUNK, GROUP, SUMMARY_SIZE, Points, Summary, summarize, unpack_summaries

Span = tuple[float, float]


class Column(NamedTuple):
    """Summary of all points in one chart column: position, minimum, maximum, and latest value.

    ``x`` is the smallest x of the column's points. In the last column it is the largest, so that the
    curve ends at its last point.
    """

    x: float
    lo: float
    hi: float
    last: float


@dataclass(frozen=True)
class Chunk:
    """A stored section of a series. ``load`` returns its points."""

    nr: int
    count: int
    stepped: int  # number of points that have a step
    summary: bytes  # summary of the whole chunk, followed by one per group
    load: Callable[[], Points]

    @cached_property
    def whole(self) -> Summary:
        return next(unpack_summaries(self.summary[:SUMMARY_SIZE]))


class ColumnBuckets:
    """Chart columns that accumulate points or summaries of points."""

    def __init__(self, start: float, end: float, width: int) -> None:
        self.start, self.end = start, end
        self._width = max(1, width)
        self._range = float(end) - float(start)
        self._columns: dict[int, list[float]] = {}

    def column(self, x: float) -> int:
        """Return the column that contains ``x``.

        Columns never decrease as ``x`` grows, so a range lies in a column if both of its ends do.
        """
        if not 0 < self._range < inf:
            return 0
        return min(int((float(x) - self.start) / self._range * self._width), self._width - 1)

    def put(self, at: int, ends: Span, summary: Sequence[float]) -> None:
        """Add points with x values in the range ``ends``.

        ``summary`` contains the minimum, maximum, latest value, and its time, or NaN if no value is finite.
        If two times are equal, the value added later counts as the latest.
        """
        lo, hi, last, when = summary
        bucket = self._columns.get(at)
        if bucket is None:
            self._columns[at] = [float(ends[0]), lo, hi, last, when, float(ends[1])]
            return
        bucket[0], bucket[5] = min(bucket[0], float(ends[0])), max(bucket[5], float(ends[1]))
        if lo != lo:
            return
        if bucket[1] != bucket[1]:
            bucket[1:5] = [lo, hi, last, when]
            return
        bucket[1], bucket[2] = min(bucket[1], lo), max(bucket[2], hi)
        if when >= bucket[4]:
            bucket[3:5] = [last, when]

    def columns(self) -> list[Column]:
        """Return the columns that contain a finite value."""
        kept = [bucket for _, bucket in sorted(self._columns.items()) if bucket[1] == bucket[1]]
        if kept:
            kept[-1][0] = kept[-1][5]
        return [Column(*bucket[:4]) for bucket in kept]


def downsample_chunks(chunks: Sequence[Chunk], width: int, x: str, span: Span | None) -> list[Column]:
    """Reduce the chunks of a series, which are in point order, to at most ``width`` columns."""
    axis = _Axis(x, ordinal=x == "step" and not has_steps(chunks))
    span = span or axis.span(chunks)
    if span is None or not span[0] <= span[1]:
        return []
    buckets = ColumnBuckets(*span, width)
    for chunk in chunks:
        axis.put_chunk(buckets, chunk)
    return buckets.columns()


def has_steps(chunks: Sequence[Chunk]) -> bool:
    """Return whether steps can serve as the x axis: all points have a step, and the steps differ."""
    if any(chunk.stepped < chunk.count for chunk in chunks):
        return False
    return len({step for chunk in chunks for step in (chunk.whole.step_lo, chunk.whole.step_hi)}) > 1


def value_range(chunks: Iterable[Chunk]) -> Span | None:
    """Return the minimum and maximum of the finite values."""
    summaries = [chunk.whole for chunk in chunks if chunk.whole.lo == chunk.whole.lo]
    return (min(summary.lo for summary in summaries), max(summary.hi for summary in summaries)) if summaries else None


def columns(xs: Iterable[float], ys: Iterable[float], width: int, span: Span | None = None) -> list[Column]:
    """Reduce arbitrary numbers, such as a list that was logged as one value, to columns."""
    pairs = [(x, y) for x, y in zip(xs, ys, strict=False) if isfinite(x)]
    if not pairs:
        return []
    start, end = span or (min(x for x, _ in pairs), max(x for x, _ in pairs))
    buckets = ColumnBuckets(start, end, width)
    for at, (x, y) in enumerate(pairs):
        if start <= x <= end and isfinite(y):
            buckets.put(buckets.column(x), (x, x), (y, y, y, at))
    return buckets.columns()


class _Axis:
    """The x axis: steps, times, or point indexes if steps cannot serve as the axis."""

    def __init__(self, x: str, ordinal: bool) -> None:
        self._times = x == "time"
        self._ordinal = ordinal

    def span(self, chunks: Iterable[Chunk]) -> Span | None:
        bounds = [end for chunk in chunks for end in self._ends(chunk.whole, chunk.nr * CHUNK, chunk.count)]
        return (min(bounds), max(bounds)) if bounds else None

    def _ends(self, summary: Summary, number: int, count: int) -> Span:
        if self._times:
            return summary.time_lo, summary.time_hi
        return (number, number + count - 1) if self._ordinal else (summary.step_lo, summary.step_hi)

    def put_chunk(self, buckets: ColumnBuckets, chunk: Chunk) -> None:
        """Add a chunk as a whole if it fits in one column; otherwise by group or by point."""
        number, points = chunk.nr * CHUNK, None
        if self._put(buckets, chunk.whole, number, chunk.count):
            return
        for at, group in enumerate(unpack_summaries(chunk.summary[SUMMARY_SIZE:])):
            start = at * GROUP
            stop = min(start + GROUP, chunk.count)
            if not self._put(buckets, group, number + start, stop - start):
                points = points or chunk.load()
                self._put_points(buckets, points, number, start, stop)

    def _put(self, buckets: ColumnBuckets, summary: Summary, number: int, count: int) -> bool:
        """Add points by their summary. Return False if they do not fit in one column."""
        start, end = self._ends(summary, number, count)
        if end < buckets.start or start > buckets.end:
            return True
        if start < buckets.start or end > buckets.end:
            return False
        at = buckets.column(start)
        if at != buckets.column(end):
            return False
        buckets.put(at, (start, end), summary[4:])
        return True

    def _put_points(self, buckets: ColumnBuckets, points: Points, number: int, start: int, stop: int) -> None:
        """Add points in slices that each fit in one column."""
        xs: Sequence[float]
        if self._times:
            xs = points.times[start:stop]
        else:
            xs = range(number + start, number + stop) if self._ordinal else points.steps[start:stop]
        for at, first, last in _column_slices(buckets, xs):
            part = xs[first:last]
            buckets.put(at, (min(part), max(part)), summarize(points, start + first, start + last)[4:])


def _column_slices(buckets: ColumnBuckets, xs: Sequence[float]) -> Iterator[tuple[int, int, int]]:
    """Yield slices of adjacent points in the same column, as (column, first index, end index)."""
    if all(map(le, xs, xs[1:])):  # the usual case: sorted, so binary search works
        first, stop = bisect_left(xs, buckets.start), bisect_right(xs, buckets.end)
        while first < stop:
            at = buckets.column(xs[first])
            last = bisect_right(xs, at, first, stop, key=buckets.column)
            yield at, first, last
            first = last
        return
    columns = [buckets.column(x) if buckets.start <= x <= buckets.end else -1 for x in xs]
    for at, group in groupby(range(len(xs)), columns.__getitem__):
        indexes = list(group)
        if at >= 0:
            yield at, indexes[0], indexes[-1] + 1
