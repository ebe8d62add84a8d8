"""Runs with all that is known of them, as one JSON text. Strict JSON, and ASCII: every program reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from ..history.parameters import of_run
from ..history.series.series import NO_STEP, Name, Series
from ..model import JsonDict
from ..version import __version__
from .material import Item, files_of, moment, plain_value, points_of

WIDTH = 1000  # points of a series without --points; a longer one is told by its columns
_NEWEST = 10  # texts and lists
_ROWS = 1000

Write = Callable[[str], None]


def write_json(items: Iterable[Item], write: Write, *, all_points: bool) -> None:
    """``{"runs": […]}``, run by run. A series is whole up to 1000 points, or with ``all_points``."""
    head = {"format": "mlworkbench-runs", "version": 1, "mlworkbench": __version__, "exported_utc": moment(time.time())}
    write(_dump(head)[:-1] + ', "runs": [')
    between = "\n"
    for item in items:
        write(between + _dump(_run(item, all_points)))
        between = ",\n"
    write("\n]}\n")


def _run(item: Item, all_points: bool) -> JsonDict:
    run = item.run
    with points_of(item) as series:
        told = [_series(item, series, name, all_points) for name in series.names(item.child)]
    return {
        **item.record,
        "name": run.name,
        "tags": list(run.tags),
        "note": run.noted.note,
        "parent_run_id": run.spec.parent,
        "params": {name: True if value is None else value for name, value in of_run(run).items()},
        "series": told,
        "files": [
            {"path": name, "size": one.size, "sha256": one.sha256, **_kind(item, one.path)}
            for name, one in files_of(item)
        ],
    }


def _kind(item: Item, path: str) -> JsonDict:
    """What the script said that the file is."""
    said = item.run.files.get(path)
    return {name: said[name] for name in ("as", "name", "step") if name in said} if said else {}


def _series(item: Item, series: Series, known: Name, all_points: bool) -> JsonDict:
    told: JsonDict = {"name": known.name, "kind": known.kind, "count": known.count}
    if known.kind == "number":
        return {**told, **_numbers(item, series, known, all_points)}
    if known.kind == "row":
        rows = series.rows(known.name, item.child)
        return {**told, "rows": rows if all_points else rows[-_ROWS:]}
    values = series.values(known.name, item.child, None if all_points else _NEWEST)
    return {**told, "values": [{"step": one.step, "time": one.time, "value": one.value} for one in values]}


def _numbers(item: Item, series: Series, known: Name, all_points: bool) -> JsonDict:
    if not all_points and known.count > WIDTH:
        drawn = series.drawn(known.name, WIDTH, child=item.child)
        x, low, high, last = zip(*drawn, strict=True) if drawn else ((), (), (), ())
        return {"drawn": {"x": x, "low": low, "high": high, "last": last}}
    points = series.points(known.name, item.child)
    steps = [None if step == NO_STEP else step for step in points.steps]
    return {"points": {"step": steps, "time": points.times.tolist(), "value": points.values.tolist()}}


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(plain_value(value), allow_nan=False)
