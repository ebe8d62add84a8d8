"""Upload the points of a run that an MLflow server does not have yet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from ...history.series.series_store import Name, Series
from ...model import JsonDict
from ...remote.shared.failpoint import failpoint
from ..run_data import Item, points_of
from . import run_mapping
from .artifacts import Report
from .batches import chunks
from .name_mapping import NameMapper
from .remote_run import RemoteRun
from .rest_client import Server

_PAGE_SIZE = 20_000


def log_points(server: Server, remote: RemoteRun, item: Item, names: NameMapper, report: Report) -> None:
    """Send all points in batches. A tag in the last request marks the metrics as complete."""
    with points_of(item) as series:
        metrics = series.names(item.child)
        for metric in metrics:
            if metric.kind == "number":
                names(metric.name)  # assign all names, whether or not points are new
        state = _digest(metrics)
        if not metrics or remote.tags.get(run_mapping.POINTS) == state:
            return
        batches = chunks(_new_points(server, remote, item, series, names))
        batch: list[JsonDict] | None = next(batches, [])
        while batch is not None:
            following = next(batches, None)
            tags = [] if following else [{"key": run_mapping.POINTS, "value": state}]
            server.post("runs/log-batch", {"run_id": remote.id, "metrics": batch, "tags": tags})
            failpoint("points sent")
            report("points", len(batch))
            batch = following


def _digest(metrics: Iterable[Name]) -> str:
    entries = [[metric.name, metric.kind, metric.count] for metric in metrics]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:32]


def _new_points(server: Server, remote: RemoteRun, item: Item, series: Series, names: NameMapper) -> Iterator[JsonDict]:
    """Yield the points that the server does not have. The server stores identical points only once."""
    for metric, points in _numeric_series(item, series):
        name = names(metric)
        existing = set(_history(server, remote.id, name)) if name in remote.metrics else ()
        for point in points:
            if not existing or point.identity not in existing:
                yield point.to_json(name)


def _history(server: Server, run_id: str, name: str) -> Iterator[tuple[int, int, float | None]]:
    token = ""
    while True:
        query: dict[str, Any] = {"run_id": run_id, "metric_key": name, "max_results": _PAGE_SIZE}
        page = server.get("metrics/get-history", **query, **({"page_token": token} if token else {}))
        for point in page.get("metrics") or []:
            yield run_mapping.Point(
                int(point.get("step") or 0), int(point["timestamp"]), float(point["value"])
            ).identity
        token = str(page.get("next_page_token") or "")
        if not token:
            return


def _numeric_series(item: Item, series: Series) -> Iterator[tuple[str, Iterable[run_mapping.Point]]]:
    """Yield all numeric series of a run under their original names."""
    for metric in series.names(item.child):
        if metric.kind == "row":
            yield from run_mapping.table_columns(item, series, metric.name).items()
        else:
            read = run_mapping.numeric_points if metric.kind == "number" else run_mapping.boolean_points
            yield metric.name, read(series, metric.name, item.child)
