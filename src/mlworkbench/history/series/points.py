"""Points of a series, in memory and packed as bytes, and their summaries."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from itertools import accumulate
from math import isfinite, nan
from struct import Struct
from typing import NamedTuple

NO_STEP = -(2**63)
CHUNK = 1024  # points per row; small because every update rewrites the last row of a series
GROUP = 64  # points per summary within a row
BYTE_ORDER = int(sys.byteorder == "big")  # native byte order; a machine with the other order rebuilds the file

_SUMMARY = Struct("=qqdddddd")


class Points:
    """Points as three parallel columns. A missing step is NO_STEP. Values may be NaN or infinite."""

    __slots__ = ("steps", "times", "values")

    def __init__(self) -> None:
        self.steps = array("q")
        self.times = array("d")
        self.values = array("d")

    def __repr__(self) -> str:
        return f"<{len(self)} points>"

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, other: Points) -> None:
        self.steps.extend(other.steps)
        self.times.extend(other.times)
        self.values.extend(other.values)

    def part(self, start: int, stop: int) -> Points:
        part = Points()
        part.steps, part.times, part.values = self.steps[start:stop], self.times[start:stop], self.values[start:stop]
        return part

    def pack(self) -> bytes:
        return self.values.tobytes() + self.times.tobytes() + self.steps.tobytes()

    @staticmethod
    def unpack(data: bytes) -> Points:
        """Decode the result of ``pack``. Raises ValueError if ``data`` has an invalid length."""
        if len(data) % 24:
            raise ValueError("not whole points")
        points, size = Points(), len(data) // 3
        points.values.frombytes(data[:size])
        points.times.frombytes(data[size : 2 * size])
        points.steps.frombytes(data[2 * size :])
        return points


class Summary(NamedTuple):
    """Ranges of steps and times, and the minimum, maximum, and latest of the finite values.

    If no value is finite, the value fields and ``last_time`` are NaN.
    """

    step_lo: int  # NO_STEP if a point has no step
    step_hi: int
    time_lo: float
    time_hi: float
    lo: float
    hi: float
    last: float
    last_time: float

    def pack(self) -> bytes:
        return _SUMMARY.pack(*self)

    def joined(self, later: Summary) -> Summary:
        """Return the combined summary of these points and of the points in ``later``."""
        if later.lo != later.lo:
            lo, hi, last, last_time = self[4:]
        elif self.lo != self.lo:
            lo, hi, last, last_time = later[4:]
        else:
            lo, hi = min(self.lo, later.lo), max(self.hi, later.hi)
            last, last_time = later[6:] if later.last_time >= self.last_time else self[6:]
        bounds = (
            min(self.step_lo, later.step_lo),
            max(self.step_hi, later.step_hi),
            min(self.time_lo, later.time_lo),
            max(self.time_hi, later.time_hi),
        )
        return Summary(*bounds, lo, hi, last, last_time)


def unpack_summaries(data: bytes) -> Iterator[Summary]:
    return map(Summary._make, _SUMMARY.iter_unpack(data))


def summarize(points: Points, start: int, stop: int) -> Summary:
    """Summarize a non-empty slice of points."""
    steps, times, values = points.steps[start:stop], points.times[start:stop], points.values[start:stop]
    bounds = min(steps), max(steps), min(times), max(times)
    finite_times = times
    if not isfinite(sum(values)):
        finite = [isfinite(value) for value in values]
        finite_times = array("d", (when for when, is_finite in zip(times, finite, strict=True) if is_finite))
        values = array("d", filter(isfinite, values))
        if not values:
            return Summary(*bounds, nan, nan, nan, nan)
    newest = max(finite_times)
    finite_times.reverse()
    last = values[-1 - finite_times.index(newest)]
    return Summary(*bounds, min(values), max(values), last, newest)


SUMMARY_SIZE = _SUMMARY.size


def summarize_chunk(points: Points, previous: bytes = b"", count: int = 0) -> bytes:
    """Return the packed summary of a chunk, followed by those of its groups.

    ``previous`` is the result for the first ``count`` points of the chunk.
    """
    whole_groups = count // GROUP
    groups = list(unpack_summaries(previous[SUMMARY_SIZE : SUMMARY_SIZE * (1 + whole_groups)]))
    for start in range(whole_groups * GROUP, len(points), GROUP):
        groups.append(summarize(points, start, start + GROUP))
    # Join in point order: of two values with the same time, the later one is the latest.
    *_, whole = accumulate(groups, Summary.joined)
    return b"".join(summary.pack() for summary in (whole, *groups))


def merge_by_time(parts: list[Points]) -> Points:
    """Merge the points of several processes by time, preserving the order within each process."""
    together = Points()
    for part in parts:
        together.extend(part)
    if len(parts) < 2:
        return together
    order = order_by_time([part.times for part in parts])
    result = Points()
    for name in Points.__slots__:
        column = getattr(together, name)
        setattr(result, name, array(column.typecode, map(column.__getitem__, order)))
    return result


def order_by_time(columns: list[array[float]]) -> list[int]:
    """Return the indexes that sort concatenated columns by time.

    A clock that was set back does not change the order within a column.
    """
    keys: list[float] = []
    for times in columns:
        keys.extend(accumulate(times, max))
    return sorted(range(len(keys)), key=keys.__getitem__)
