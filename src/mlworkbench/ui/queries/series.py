"""What a run measured: the names, and each series as a picture of a given width needs it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from ...errors import UnknownName
from ...history.series.drawing import Column
from ...history.series.drawing import columns as draw_list
from ...history.series.measured import Measured
from ...history.series.points import NO_STEP, Points
from ...history.series.series import Name
from ...history.store import History
from ...model import Run
from ...report.plain import plain
from ...report.values import shown

Span = tuple[float, float]
_COUNTED = 50_000  # points up to which those that are not finite are looked for
_ODD = 500


@dataclass(frozen=True)
class Series:
    """A downsampled series of numbers."""

    run: str
    name: str
    over: Annotated[str, Field(description="X axis: step, time (Unix time), or points (counted from 0)")]
    count: Annotated[int, Field(description="Number of points in the complete series")]
    start: Annotated[float, Field(description="Start of the run, as Unix time")]
    final: Annotated[bool, Field(description="The series is complete")]
    columns: Annotated[Sequence[Column], Field(description="x, minimum, maximum, and last value of each column")]
    least: float | None
    greatest: float | None
    last: float | None
    odd: Annotated[int, Field(description="Number of values that are not finite; not counted in very long series")] = 0
    odd_at: Annotated[Sequence[float], Field(description="x positions of some of these values")] = ()


def names(history: History, run_id: str) -> list[Name]:
    """Every name that the run has measured, with its kind and how many values it has."""
    with Measured(history, history.get(run_id)) as measured:
        return measured.names()


def drawn(history: History, run_id: str, name: str, width: int, x: str = "step", span: Span | None = None) -> Series:
    """One series of numbers; a list that was logged as one value is one, too."""
    run = history.get(run_id)
    with Measured(history, run) as measured:
        known = {(one.name, one.kind): one for one in measured.names()}
        one = known.get((name, "number"))
        if one is None:
            count = len(measured.points(name))  # a column of a table that was logged row by row: table.column
            if not count:
                return _list(run, measured, name, width, span)
            one = Name(name, "number", count)
        over = x if x == "time" or one.count < 2 or measured.has_steps(name) else "points"
        columns = measured.drawn(name, width, x, span)
        least, greatest = measured.ends(name) or (None, None)
        told = _told(run, one, over, columns, least, greatest)
        return told if one.count > _COUNTED else _with_odd(told, measured.points(name))


def _with_odd(told: Series, points: Points) -> Series:
    """A curve that runs straight across NaN would hide what people look for most."""
    at = [number for number, value in enumerate(points.values) if not math.isfinite(value)]
    known: dict[str, Sequence[float]] = {"time": points.times, "step": points.steps}
    every = known.get(told.over, range(len(points)))
    return replace(told, odd=len(at), odd_at=sorted(float(every[number]) for number in at[:_ODD]))


def _list(run: Run, measured: Measured, name: str, width: int, span: Span | None) -> Series:
    """A list of numbers that was logged as one value is a curve, too."""
    values = measured.values(name, newest=1)
    numbers = values[-1].value if values else None
    if not isinstance(numbers, list) or not all(type(one) in (int, float) for one in numbers):
        raise UnknownName("metric", name, {one.name for one in measured.names() if one.kind == "number"})
    columns = draw_list(range(len(numbers)), [float(one) for one in numbers], width, span)
    ends = (min(one.lo for one in columns), max(one.hi for one in columns)) if columns else (None, None)
    told = _told(run, Name(name, "value", len(numbers)), "points", columns, *ends)
    return replace(told, last=columns[-1].last if columns else None)


@dataclass(frozen=True)
class Point:
    """One number as it was logged; None: it is no finite one, and ``words`` says which."""

    step: int | None
    time: float
    value: float | None
    words: str


def points(history: History, run_id: str, name: str, first: int, count: int) -> tuple[int, list[Point]]:
    """How many there are, and some of them; ``first`` below 0 counts from the end."""
    with Measured(history, history.get(run_id)) as measured:
        found = measured.points(name)
    total = len(found)
    start = min(total, first if first >= 0 else max(0, total + first))
    part = found.part(start, start + count)
    told = [
        Point(None if step == NO_STEP else step, moment, _finite(value), shown(value))
        for step, moment, value in zip(part.steps, part.times, part.values, strict=True)
    ]
    return total, told


@dataclass(frozen=True)
class Told:
    """Values that are no numbers: the newest of a name, or the newest rows of a table."""

    name: str
    count: int
    titles: list[str]
    rows: list[list[str]]
    curve: bool = False  # the newest value is a list of numbers


def told_values(history: History, run_id: str, newest: int = 20, most: int = 50) -> list[Told]:
    """All names whose values are no numbers."""
    found = []
    with Measured(history, history.get(run_id)) as measured:
        for one in [name for name in measured.names() if name.kind != "number"][:most]:
            if one.kind == "row":
                rows = measured.rows(one.name, newest=5 * newest)
                titles = list(dict.fromkeys(plain(key, 60) for row in rows for key in row))[:50]
                cells = [[shown(row.get(title), 200) for title in titles] for row in rows]
                found.append(Told(plain(one.name, 200), one.count, titles, cells))
                continue
            values = measured.values(one.name, newest=newest)
            cells = [["" if value.step is None else str(value.step), shown(value.value, 500)] for value in values]
            last = values[-1].value if values else None
            curve = isinstance(last, list) and len(last) > 1 and all(type(part) in (int, float) for part in last)
            found.append(Told(one.name, one.count, ["Step", "Value"], cells, curve))
    return found


def _told(run: Run, one: Name, over: str, columns: list[Column], least: float | None, greatest: float | None) -> Series:
    last = run.metrics.get(one.name)
    if not isinstance(last, (int, float)) or isinstance(last, bool):  # it was logged as a text since
        last = columns[-1].last if columns else None
    return Series(
        run=run.id,
        name=one.name,
        over=over,
        count=one.count,
        start=run.started or run.spec.created,
        final=run.status.final,
        columns=columns,
        least=_finite(least),
        greatest=_finite(greatest),
        last=_finite(last),
    )


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
