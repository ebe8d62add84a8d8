"""Endpoints for run metrics: names, and series downsampled for charts."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from ...export.csv_export import cell
from ..backend import Backend
from ..queries import series, system_metrics
from ..security_headers import SANDBOX

_BATCH_SIZE = 50_000  # points per chunk of a CSV download
First = Annotated[
    int, Query(ge=-(2**53), le=2**53, description="First point, counted from 0; negative values count from the end")
]
Count = Annotated[int, Query(ge=1, le=10_000)]

Width = Annotated[
    int, Query(ge=1, le=4000, description="Maximum number of columns; the width of the chart in pixels is enough")
]
Axis = Literal["step", "time"]
From = Annotated[float | None, Query(alias="from", description="Lowest step or time")]
To = Annotated[float | None, Query(description="Highest step or time")]
OptionalName = Annotated[str | None, Query(max_length=10_240)]
Ranks = Annotated[bool, Query(description="Include the metrics of all ranks, such as rank 2/loss")]
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


def routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    @router.get("/runs/{run}/metrics", summary="List the metrics of a run")
    async def list_metrics(run: str, ranks: Ranks = False) -> list[Metric]:
        metrics = await backend.call(series.names, run, ranks)
        return [Metric(name=metric.name, kind=metric.kind, count=metric.count) for metric in metrics]

    @router.get("/runs/{run}/series", summary="Get a metric, downsampled for a chart")
    async def get_series(
        run: str, name: MetricName, x: Axis = "step", width: Width = 600, start: From = None, to: To = None
    ) -> series.Series:
        return await backend.call(series.load_series, run, name, width, x, _span(start, to))

    @router.get("/runs/{run}/points", summary="Get logged points of a metric")
    async def get_points(run: str, name: MetricName, first: First = 0, count: Count = 1000) -> Points:
        total, part = await backend.call(series.points, run, name, first, count)
        return Points(total=total, points=[(point.step, point.time, point.value) for point in part])

    @router.get("/runs/{run}/metrics.csv", summary="Export one metric or all metrics as CSV")
    async def export_csv(run: str, name: OptionalName = None, ranks: Ranks = False) -> StreamingResponse:
        metrics = await backend.call(series.names, run, ranks or name is not None)
        names = [metric.name for metric in metrics if metric.kind == "number" and name in (None, metric.name)]
        headers = {"content-disposition": 'attachment; filename="metrics.csv"', "content-security-policy": SANDBOX}
        return StreamingResponse(_csv(backend, run, names), media_type="text/csv; charset=utf-8", headers=headers)

    @router.get("/runs/{run}/machine", summary="List the GPU and process metrics of a run")
    async def list_gauges(run: str) -> list[system_metrics.Gauge]:
        return await backend.call(system_metrics.SHARED.gauges, run)

    @router.get("/runs/{run}/machine/series", summary="Get a GPU or process metric, downsampled for a chart")
    async def get_machine_series(
        run: str,
        name: Annotated[
            str, Query(max_length=100, description="Name of the curve, for example gpu0.utilisation or run.cores")
        ],
        x: Literal["step", "time"] = "time",
        width: Width = 600,
        start: From = None,
        to: To = None,
    ) -> series.Series:
        return await backend.call(system_metrics.SHARED.load_series, run, name, width, x, _span(start, to))

    return router


async def _csv(backend: Backend, run: str, names: list[str]) -> AsyncIterator[str]:
    yield "name,step,time,value\n"
    for name in names:
        first = 0
        while True:
            _, points = await backend.call(series.points, run, name, first, _BATCH_SIZE)
            if not points:
                break
            yield await asyncio.to_thread(_rows, name, points)
            first += len(points)


def _rows(name: str, points: list[series.Point]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for point in points:
        value = point.text if point.value is None else repr(point.value)
        writer.writerow([cell(name), "" if point.step is None else point.step, f"{point.time:.6f}", value])
    return text.getvalue()


def _span(start: float | None, to: float | None) -> series.Span | None:
    return None if start is None or to is None else (start, to)
