"""Export runs with all their data as strict ASCII JSON, which every parser accepts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from ..history.journal_parsing import strict_json
from ..history.parameters import run_parameters
from ..history.series.series_store import NO_STEP, Name, Series
from ..model import DATASET_TAG, JsonDict
from ..runfiles.mlflow_models import Dataset, read_datasets
from ..version import __version__
from .run_data import Item, files_of, format_time, points_of

MAX_POINTS = 1000  # maximum points of a series without --points; longer series are downsampled
_MAX_VALUES = 10  # maximum strings or lists of a metric without --points
_MAX_ROWS = 1000

Write = Callable[[str], None]


def write_json(items: Iterable[Item], write: Write, *, all_points: bool) -> None:
    """Write ``{"runs": […]}`` run by run. Long series are downsampled unless ``all_points`` is set."""
    head = {
        "format": "mlworkbench-runs",
        "version": 1,
        "mlworkbench": __version__,
        "exported_utc": format_time(time.time()),
    }
    write(_dump(head)[:-1] + ', "runs": [')
    separator = "\n"
    for item in items:
        write(separator + _dump(_run_data(item, all_points)))
        separator = ",\n"
    write("\n]}\n")


def _run_data(item: Item, all_points: bool) -> JsonDict:
    run = item.run
    with points_of(item) as series:
        series_data = [_series_data(item, series, name, all_points) for name in series.names(item.child)]
    return {
        **item.record,
        "name": run.name,
        "tags": list(run.tags),
        "note": run.noted.note,
        "description": run.noted.note or run.told_tags.get("mlflow.note.content"),
        "datasets": [asdict(dataset) for dataset in _datasets(item)],
        "parent_run_id": run.spec.parent,
        "params": {name: True if value is None else value for name, value in run_parameters(run).items()},
        "series": series_data,
        "files": [
            {"path": name, "size": output.size, "sha256": output.sha256, **_file_description(item, output.path)}
            for name, output in files_of(item)
        ],
    }


def _datasets(item: Item) -> list[Dataset]:
    has_datasets = any(name.startswith(DATASET_TAG) for name in item.run.told_tags)
    return read_datasets(item.folder, item.owner) if has_datasets else []


def _file_description(item: Item, path: str) -> JsonDict:
    """Return the description that the script gave the file."""
    description = item.run.files.get(path)
    return {name: description[name] for name in ("as", "name", "step") if name in description} if description else {}


def _series_data(item: Item, series: Series, metric: Name, all_points: bool) -> JsonDict:
    data: JsonDict = {"name": metric.name, "kind": metric.kind, "count": metric.count}
    if metric.kind == "number":
        return {**data, **_number_points(item, series, metric, all_points)}
    if metric.kind == "row":
        rows = series.rows(metric.name, item.child)
        return {**data, "rows": rows if all_points else rows[-_MAX_ROWS:]}
    values = series.values(metric.name, item.child, None if all_points else _MAX_VALUES)
    return {**data, "values": [{"step": entry.step, "time": entry.time, "value": entry.value} for entry in values]}


def _number_points(item: Item, series: Series, metric: Name, all_points: bool) -> JsonDict:
    if not all_points and metric.count > MAX_POINTS:
        columns = series.downsample(metric.name, MAX_POINTS, child=item.child)
        x, low, high, last = zip(*columns, strict=True) if columns else ((), (), (), ())
        return {"drawn": {"x": x, "low": low, "high": high, "last": last}}
    points = series.points(metric.name, item.child)
    steps = [None if step == NO_STEP else step for step in points.steps]
    return {"points": {"step": steps, "time": points.times.tolist(), "value": points.values.tolist()}}


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(strict_json(value), allow_nan=False)
