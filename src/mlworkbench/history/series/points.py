"""Points of a series in memory and as bytes, and what a stretch of them amounts to."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from itertools import accumulate
from math import isfinite, nan
from struct import Struct
from typing import NamedTuple

NO_STEP = -(2**63)
CHUNK = 1024  # points of one row: the last row of a series is written anew with every catch-up, so it must be small
GROUP = 64  # points of one summary within a row
BYTE_ORDER = int(sys.byteorder == "big")  # bytes are as this machine has them; another kind of machine makes its own

_SUMMARY = Struct("=qqdddddd")


class Points:
    """Three columns. A step that was not given is NO_STEP; values may be NaN and infinite."""

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
        """Raises ValueError for bytes that ``pack`` did not make."""
        if len(data) % 24:
            raise ValueError("not whole points")
        points, each = Points(), len(data) // 3
        points.values.frombytes(data[:each])
        points.times.frombytes(data[each : 2 * each])
        points.steps.frombytes(data[2 * each :])
        return points


class Summary(NamedTuple):
    """Where points lie, and of those with a finite value: least, largest, and the latest by time (else NaN)."""

    step_lo: int  # NO_STEP where one of them has none
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
        """Of these points and the later ones together."""
        if later.lo != later.lo:
            lo, hi, last, last_time = self[4:]
        elif self.lo != self.lo:
            lo, hi, last, last_time = later[4:]
        else:
            lo, hi = min(self.lo, later.lo), max(self.hi, later.hi)
            last, last_time = later[6:] if later.last_time >= self.last_time else self[6:]
        ends = (
            min(self.step_lo, later.step_lo),
            max(self.step_hi, later.step_hi),
            min(self.time_lo, later.time_lo),
            max(self.time_hi, later.time_hi),
        )
        return Summary(*ends, lo, hi, last, last_time)


def summaries(data: bytes) -> Iterator[Summary]:
    return map(Summary._make, _SUMMARY.iter_unpack(data))


def summarise(points: Points, start: int, stop: int) -> Summary:
    """Of at least one point."""
    steps, times, values = points.steps[start:stop], points.times[start:stop], points.values[start:stop]
    ends = min(steps), max(steps), min(times), max(times)
    moments = times
    if not isfinite(sum(values)):
        finite = [isfinite(value) for value in values]
        moments = array("d", (when for when, good in zip(times, finite, strict=True) if good))
        values = array("d", filter(isfinite, values))
        if not values:
            return Summary(*ends, nan, nan, nan, nan)
    newest = max(moments)
    moments.reverse()
    last = values[-1 - moments.index(newest)]
    return Summary(*ends, min(values), max(values), last, newest)


SUMMARY_SIZE = _SUMMARY.size


def summarise_chunk(points: Points, known: bytes = b"", count: int = 0) -> bytes:
    """The summary of the whole chunk, then that of each group. ``known`` is that of its first ``count`` points."""
    whole_groups = count // GROUP
    groups = list(summaries(known[SUMMARY_SIZE : SUMMARY_SIZE * (1 + whole_groups)]))
    for start in range(whole_groups * GROUP, len(points), GROUP):
        groups.append(summarise(points, start, start + GROUP))
    # Joined from the left, in the order of the points.
    *_, whole = accumulate(groups, Summary.joined)
    return b"".join(one.pack() for one in (whole, *groups))


def merged(parts: list[Points]) -> Points:
    """The points of several processes, by time; those of each stay in the order in which they came."""
    together = Points()
    for part in parts:
        together.extend(part)
    if len(parts) < 2:
        return together
    order = by_time([part.times for part in parts])
    result = Points()
    for name in Points.__slots__:
        column = getattr(together, name)
        setattr(result, name, array(column.typecode, map(column.__getitem__, order)))
    return result


def by_time(columns: list[array[float]]) -> list[int]:
    """The order of several lists, one after the other, by time. A clock that was set back reorders no list."""
    keys: list[float] = []
    for times in columns:
        keys.extend(accumulate(times, max))
    return sorted(range(len(keys)), key=keys.__getitem__)
