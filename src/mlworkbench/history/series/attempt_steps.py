"""Steps that several attempts of a run logged: the points of the newest attempt replace those of earlier ones.

An attempt that continues from a checkpoint repeats the steps after it. The metrics files keep the points of all
attempts. The time of a point shows its attempt, because all sources of metrics have it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...model import Run
from .downsampling import Chunk
from .other_values import Value
from .points import NO_STEP, Points, summarize_chunk

Start = float  # time at which an attempt after the first one started its script


def attempt_starts(run: Run) -> list[Start]:
    """Return when each attempt after the first one started. An attempt whose script never started is left out."""
    if not run.attempts:
        return []
    times = [*(attempt.get("started") for attempt in run.attempts[1:]), run.started]
    return sorted(float(time) for time in times if isinstance(time, (int, float)))


class _NewestAttempts:
    """The newest attempt that logged each step, if it is not the first one."""

    def __init__(self, starts: Sequence[Start]) -> None:
        self._starts = starts
        self._attempts: dict[int, int] = {}

    def attempt(self, time: float) -> int:
        return bisect_right(self._starts, time)

    def add(self, steps: Iterable[int | None], times: Iterable[float], last_step: float) -> None:
        """Add the points of a series up to ``last_step``."""
        for step, time in zip(steps, times, strict=True):
            if step is not None and NO_STEP < step <= last_step and (attempt := self.attempt(time)):
                self._attempts[step] = max(attempt, self._attempts.get(step, 0))

    def steps(self) -> tuple[int, int] | None:
        """Return the first and the last step of later attempts."""
        return (min(self._attempts), max(self._attempts)) if self._attempts else None

    def is_newest(self, step: int | None, time: float) -> bool:
        """Return whether no later attempt logged this step."""
        return step is None or self._attempts.get(step, 0) <= self.attempt(time)


def newest_values(values: Sequence[Value], starts: Sequence[Start]) -> list[Value]:
    """Return the values without those that a later attempt replaced."""
    newest = _NewestAttempts(starts)
    newest.add((value.step for value in values), (value.time for value in values), float("inf"))
    return [value for value in values if newest.is_newest(value.step, value.time)]


def newest_chunks(chunks: Sequence[tuple[bytes, Chunk]], starts: Sequence[Start]) -> list[tuple[bytes, Chunk]]:
    """Return the chunks of a series without points that a later attempt replaced.

    Only chunks with repeated steps are loaded: after a checkpoint, these are a few.
    """
    newest = _NewestAttempts(starts)
    ends = [(newest.attempt(chunk.whole.time_lo), newest.attempt(chunk.whole.time_hi)) for _, chunk in chunks]
    last_attempt = max((last for _, last in ends), default=0)
    replaceable = [first < last_attempt for first, _ in ends]
    last_step = max(
        (chunk.whole.step_hi for (_, chunk), may in zip(chunks, replaceable, strict=True) if may), default=0
    )
    for (_, chunk), (_, last) in zip(chunks, ends, strict=True):
        if last and chunk.whole.step_lo <= last_step:
            points = chunk.load()
            newest.add(points.steps, points.times, last_step)
    repeated = newest.steps()
    if repeated is None:
        return list(chunks)
    kept = [
        (name, _filter(chunk, newest) if may and _overlaps(chunk, *repeated) else chunk)
        for (name, chunk), may in zip(chunks, replaceable, strict=True)
    ]
    return [(name, chunk) for name, chunk in kept if chunk.count]


def _overlaps(chunk: Chunk, first_step: int, last_step: int) -> bool:
    return chunk.whole.step_lo <= last_step and chunk.whole.step_hi >= first_step


def _filter(chunk: Chunk, newest: _NewestAttempts) -> Chunk:
    points, kept = chunk.load(), Points()
    for step, time, value in zip(points.steps, points.times, points.values, strict=True):
        if newest.is_newest(step, time):
            kept.steps.append(step)
            kept.times.append(time)
            kept.values.append(value)
    summary = summarize_chunk(kept) if kept.values else b""
    stepped = len(kept) - kept.steps.count(NO_STEP)
    return replace(chunk, count=len(kept), stepped=stepped, summary=summary, load=lambda: kept)
