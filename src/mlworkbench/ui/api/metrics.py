"""What runs measured: names, and series as a picture of a given width needs them."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from ...export.csvfile import cell
from ..answers import samples, series
from ..desk import Desk
from ..headers import SANDBOX

_BATCH = 50_000  # points that are written at a time
First = Annotated[int, Query(ge=-(2**53), le=2**53, description="The first one, from 0; below 0 from the end")]
Count = Annotated[int, Query(ge=1, le=10_000)]

Width = Annotated[int, Query(ge=1, le=4000, description="Columns at most; one for each pixel is enough")]
From = Annotated[float | None, Query(alias="from", description="Only from this step or time on")]
To = Annotated[float | None, Query(description="Only up to this step or time")]
MetricName = Annotated[str, Query(max_length=10_240, description="The metric's name")]


class Metric(BaseModel):
    """A name that a run has measured."""

    name: str
    kind: str = Field(description="number, value (texts, lists), or row (of a table)")
    count: int


class Points(BaseModel):
    """Some points of a series."""

    total: int
    points: list[tuple[int | None, float, float | None]] = Field(description="Step, time and value of each")


class Gauge(BaseModel):
    """A kind of figure that was measured of the machine, and its curves."""

    title: str
    unit: str
    curves: list[tuple[str, str]] = Field(description="Label, and name for /machine/series")


class Series(BaseModel):
    """Numbers of one name, in columns."""

    run: str
    name: str
    over: str = Field(description="What x is: step, time (seconds since 1970), or points (counted from 0)")
    count: int = Field(description="Points of the whole series")
    start: float = Field(description="When the run began, in seconds since 1970")
    final: bool = Field(description="Nothing more comes")
    columns: list[tuple[float, float, float, float]] = Field(description="x, least, greatest and last value of each")
    least: float | None
    greatest: float | None
    last: float | None
    odd: int = Field(0, description="Values that are not finite; not counted in very long series")
    odd_at: list[float] = Field(default=[], description="x of some of them")


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    @router.get("/runs/{run}/metrics", summary="The names of what a run has measured")
    async def measured(run: str) -> list[Metric]:
        found = await desk.ask(series.names, run)
        return [Metric(name=one.name, kind=one.kind, count=one.count) for one in found]

    @router.get("/runs/{run}/series", summary="One series of numbers, thinned out for a picture of this width")
    async def one(
        run: str,
        name: MetricName,
        x: Literal["step", "time"] = "step",
        width: Width = 600,
        start: From = None,
        to: To = None,
    ) -> Series:
        found = await desk.ask(series.drawn, run, name, width, x, _span(start, to))
        return told(found)

    @router.get("/runs/{run}/points", summary="Points of one series as they were logged")
    async def points(run: str, name: MetricName, first: First = 0, count: Count = 1000) -> Points:
        total, found = await desk.ask(series.points, run, name, first, count)
        return Points(total=total, points=[(one.step, one.time, one.value) for one in found])

    @router.get("/runs/{run}/metrics.csv", summary="Every point of one series, or of all, as CSV")
    async def table(run: str, name: Annotated[str | None, Query(max_length=10_240)] = None) -> StreamingResponse:
        known = await desk.ask(series.names, run)
        wanted = [one.name for one in known if one.kind == "number" and name in (None, one.name)]
        headers = {"content-disposition": 'attachment; filename="metrics.csv"', "content-security-policy": SANDBOX}
        return StreamingResponse(_csv(desk, run, wanted), media_type="text/csv; charset=utf-8", headers=headers)

    @router.get("/runs/{run}/machine", summary="What was measured of GPUs and of the run's processes")
    async def gauges(run: str) -> list[Gauge]:
        return [Gauge(**vars(one)) for one in await desk.ask(samples.SHARED.gauges, run)]

    @router.get("/runs/{run}/machine/series", summary="One of these figures over time, thinned out for a picture")
    async def machine(
        run: str,
        name: Annotated[str, Query(max_length=100, description="Such as gpu0.utilisation or run.cores")],
        x: Literal["step", "time"] = "time",
        width: Width = 600,
        start: From = None,
        to: To = None,
    ) -> Series:
        return told(await desk.ask(samples.SHARED.drawn, run, name, width, x, _span(start, to)))

    return router


def told(found: series.Drawn) -> Series:
    return Series(**{**vars(found), "columns": [tuple(column) for column in found.columns]})


async def _csv(desk: Desk, run: str, names: list[str]) -> AsyncIterator[str]:
    yield "name,step,time,value\n"
    for name in names:
        first = 0
        while True:
            _, found = await desk.ask(series.points, run, name, first, _BATCH)
            if not found:
                break
            yield await asyncio.to_thread(_rows, name, found)
            first += len(found)


def _rows(name: str, found: list[series.Point]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for one in found:
        value = one.words if one.value is None else repr(one.value)
        rows.writerow([cell(name), "" if one.step is None else one.step, f"{one.time:.6f}", value])
    return text.getvalue()


def _span(start: float | None, to: float | None) -> series.Span | None:
    return None if start is None or to is None else (start, to)
