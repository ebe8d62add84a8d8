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
First = Annotated[
    int, Query(ge=-(2**53), le=2**53, description="First point, counted from 0; negative values count from the end")
]
Count = Annotated[int, Query(ge=1, le=10_000)]

Width = Annotated[
    int, Query(ge=1, le=4000, description="Maximum number of columns; the width of the chart in pixels is enough")
]
From = Annotated[float | None, Query(alias="from", description="Lowest step or time")]
To = Annotated[float | None, Query(description="Highest step or time")]
MetricName = Annotated[str, Query(max_length=10_240, description="Name of the metric")]


class Metric(BaseModel):
    """A metric of a run."""

    name: str
    kind: str = Field(description="number, value (text or list), or row (of a table)")
    count: int


class Points(BaseModel):
    """Points of a series."""

    total: int
    points: list[tuple[int | None, float, float | None]] = Field(description="Step, time, and value of each point")


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    @router.get("/runs/{run}/metrics", summary="List the metrics of a run")
    async def measured(run: str) -> list[Metric]:
        found = await desk.ask(series.names, run)
        return [Metric(name=one.name, kind=one.kind, count=one.count) for one in found]

    @router.get("/runs/{run}/series", summary="Get a metric, downsampled for a chart")
    async def one(
        run: str,
        name: MetricName,
        x: Literal["step", "time"] = "step",
        width: Width = 600,
        start: From = None,
        to: To = None,
    ) -> series.Series:
        return await desk.ask(series.drawn, run, name, width, x, _span(start, to))

    @router.get("/runs/{run}/points", summary="Get logged points of a metric")
    async def points(run: str, name: MetricName, first: First = 0, count: Count = 1000) -> Points:
        total, found = await desk.ask(series.points, run, name, first, count)
        return Points(total=total, points=[(one.step, one.time, one.value) for one in found])

    @router.get("/runs/{run}/metrics.csv", summary="Export one metric or all metrics as CSV")
    async def table(run: str, name: Annotated[str | None, Query(max_length=10_240)] = None) -> StreamingResponse:
        known = await desk.ask(series.names, run)
        wanted = [one.name for one in known if one.kind == "number" and name in (None, one.name)]
        headers = {"content-disposition": 'attachment; filename="metrics.csv"', "content-security-policy": SANDBOX}
        return StreamingResponse(_csv(desk, run, wanted), media_type="text/csv; charset=utf-8", headers=headers)

    @router.get("/runs/{run}/machine", summary="List the GPU and process metrics of a run")
    async def gauges(run: str) -> list[samples.Gauge]:
        return await desk.ask(samples.SHARED.gauges, run)

    @router.get("/runs/{run}/machine/series", summary="Get a GPU or process metric, downsampled for a chart")
    async def machine(
        run: str,
        name: Annotated[
            str, Query(max_length=100, description="Name of the curve, for example gpu0.utilisation or run.cores")
        ],
        x: Literal["step", "time"] = "time",
        width: Width = 600,
        start: From = None,
        to: To = None,
    ) -> series.Series:
        return await desk.ask(samples.SHARED.drawn, run, name, width, x, _span(start, to))

    return router


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
