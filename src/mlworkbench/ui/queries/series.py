"""Metrics of a run: names, and series downsampled for charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from ...errors import UnknownName
from ...history.series.downsampling import Column
from ...history.series.downsampling import columns as draw_list
from ...history.series.points import NO_STEP, Points
from ...history.series.run_series import RunSeries
from ...history.series.series_store import Name
from ...history.store import History
from ...model import Run
from ...report.value_format import format_value
from ...sanitize import plain

Span = tuple[float, float]
_MAX_CHECKED = 50_000  # maximum points of a series to check for nonfinite values
_MAX_NONFINITE = 500


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


def names(history: History, run_id: str, with_ranks: bool = False) -> list[Name]:
    """Return the name, kind, and number of values of every metric of the run."""
    with RunSeries(history, history.get(run_id), with_ranks=with_ranks) as measured:
        return measured.names()


def rank_names(history: History, run_id: str) -> dict[str, list[str]]:
    """Return the series of ranks other than 0 for each metric, such as ``{"loss": ["rank 1/loss"]}``."""
    with RunSeries(history, history.get(run_id)) as measured:
        return measured.rank_names()


def load_series(
    history: History, run_id: str, name: str, width: int, x: str = "step", span: Span | None = None
) -> Series:
    """Load a series of numbers. A list logged as a single value is also a series."""
    run = history.get(run_id)
    with RunSeries(history, run, with_ranks=True) as measured:
        names_by_kind = {(metric.name, metric.kind): metric for metric in measured.names()}
        metric = names_by_kind.get((name, "number"))
        if metric is None:
            count = len(measured.points(name))  # the name may be table.column, for a table logged row by row
            if not count:
                return _list_series(run, measured, name, width, span)
            metric = Name(name, "number", count)
        over = x if x == "time" or metric.count < 2 or measured.has_steps(name) else "points"
        columns = measured.downsample(name, width, x, span)
        least, greatest = measured.value_range(name) or (None, None)
        loaded = _build_series(run, metric, over, columns, least, greatest)
        return loaded if metric.count > _MAX_CHECKED else _with_nonfinite(loaded, measured.points(name))


def _with_nonfinite(series: Series, points: Points) -> Series:
    """Add the positions of nonfinite values, because a curve drawn across NaN would hide them."""
    positions = [number for number, value in enumerate(points.values) if not math.isfinite(value)]
    axes: dict[str, Sequence[float]] = {"time": points.times, "step": points.steps}
    axis = axes.get(series.over, range(len(points)))
    return replace(
        series, odd=len(positions), odd_at=sorted(float(axis[number]) for number in positions[:_MAX_NONFINITE])
    )


def _list_series(run: Run, measured: RunSeries, name: str, width: int, span: Span | None) -> Series:
    """Return the series for a list of numbers that was logged as a single value."""
    values = measured.values(name, newest=1)
    numbers = values[-1].value if values else None
    if not isinstance(numbers, list) or not all(type(number) in (int, float) for number in numbers):
        raise UnknownName("metric", name, {metric.name for metric in measured.names() if metric.kind == "number"})
    columns = draw_list(range(len(numbers)), [float(number) for number in numbers], width, span)
    ends = (min(column.lo for column in columns), max(column.hi for column in columns)) if columns else (None, None)
    series = _build_series(run, Name(name, "value", len(numbers)), "points", columns, *ends)
    return replace(series, last=columns[-1].last if columns else None)


@dataclass(frozen=True)
class Point:
    """Logged number. If it is not finite, ``value`` is None and ``text`` contains its name."""

    step: int | None
    time: float
    value: float | None
    text: str


def points(history: History, run_id: str, name: str, first: int, count: int) -> tuple[int, list[Point]]:
    """Return the total number of points, and the requested ones. A negative ``first`` counts from the end."""
    with RunSeries(history, history.get(run_id), with_ranks=True) as measured:
        series = measured.points(name)
    total = len(series)
    start = min(total, first if first >= 0 else max(0, total + first))
    part = series.part(start, start + count)
    points = [
        Point(None if step == NO_STEP else step, moment, _finite(value), format_value(value))
        for step, moment, value in zip(part.steps, part.times, part.values, strict=True)
    ]
    return total, points


@dataclass(frozen=True)
class LoggedValues:
    """Values that are not numbers: the newest values of a metric, or the newest rows of a table."""

    name: str
    count: int
    titles: list[str]
    rows: list[list[str]]
    curve: bool = False  # the newest value is a list of numbers


def logged_values(history: History, run_id: str, newest: int = 20, most: int = 50) -> list[LoggedValues]:
    """Return all metrics whose values are not numbers."""
    logged = []
    with RunSeries(history, history.get(run_id)) as measured:
        for metric in [name for name in measured.names() if name.kind != "number"][:most]:
            if metric.kind == "row":
                rows = measured.rows(metric.name, newest=5 * newest)
                titles = list(dict.fromkeys(plain(key, 60) for row in rows for key in row))[:50]
                cells = [[format_value(row.get(title), 200) for title in titles] for row in rows]
                logged.append(LoggedValues(plain(metric.name, 200), metric.count, titles, cells))
                continue
            values = measured.values(metric.name, newest=newest)
            cells = [
                ["" if value.step is None else str(value.step), format_value(value.value, 500)] for value in values
            ]
            last = values[-1].value if values else None
            curve = isinstance(last, list) and len(last) > 1 and all(type(part) in (int, float) for part in last)
            logged.append(LoggedValues(metric.name, metric.count, ["Step", "Value"], cells, curve))
    return logged


def _build_series(
    run: Run, metric: Name, over: str, columns: list[Column], least: float | None, greatest: float | None
) -> Series:
    last = run.metrics.get(metric.name)
    if not isinstance(last, (int, float)) or isinstance(last, bool):  # the last value is text
        last = columns[-1].last if columns else None
    return Series(
        run=run.id,
        name=metric.name,
        over=over,
        count=metric.count,
        start=run.started or run.spec.created,
        final=run.status.final,
        columns=columns,
        least=_finite(least),
        greatest=_finite(greatest),
        last=_finite(last),
    )


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
