"""Runs and metrics as pandas has them. pandas is the user's; nothing else here needs it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from ..errors import UsageError
from ..model import Run
from .parameters import number, of_run
from .series.points import NO_STEP, Points

DataFrame = Any  # of pandas, which is not installed with us
_OWN = (
    *("run_id", "name", "status", "script_name", "target", "project"),
    *("start_time", "end_time", "duration", "gpu", "parent_run_id"),
)


def runs_frame(runs: Iterable[Run]) -> DataFrame:
    """A row for each run; metrics, parameters and tags are columns: ``metrics.loss``, ``params.lr``, ``tags.team``."""
    pandas = _pandas()
    frame = pandas.DataFrame([_row(run) for run in runs])
    return frame if len(frame.columns) else pandas.DataFrame(columns=list(_OWN))


def points_frame(series: Mapping[str, Points]) -> DataFrame:
    """A row for each point: name, step, time, value."""
    pandas = _pandas()
    columns: dict[str, list[Any]] = {"name": [], "step": [], "time": [], "value": []}
    for name, points in series.items():
        columns["name"] += [name] * len(points)
        columns["step"] += [None if step == NO_STEP else step for step in points.steps]
        columns["time"] += list(points.times)
        columns["value"] += list(points.values)
    frame = pandas.DataFrame(columns)
    frame["step"] = frame["step"].astype("Int64")
    frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
    return frame


def _row(run: Run) -> dict[str, Any]:
    tags = (tag.partition("=") for tag in run.tags)
    return {
        **dict(zip(_OWN, _own(run), strict=True)),
        **{f"metrics.{name}": value for name, value in run.metrics.items()},
        **{f"params.{name}": _param(value) for name, value in of_run(run).items()},
        **{f"tags.{name}": value if equals else True for name, equals, value in tags},
    }


def _own(run: Run) -> tuple[Any, ...]:
    spec = run.spec
    return (
        run.id,
        run.name,
        run.status.value,
        spec.entry.name,
        spec.compute.name,
        spec.project_name,
        _moment(run.started),
        _moment(run.ended),
        run.duration,
        (run.gpu or {}).get("used"),
        spec.parent,
    )


def _param(value: Any) -> Any:
    """``--lr 0.1`` is a number to whoever computes with it; a switch is true."""
    if value is None:
        return True
    found = number(value) if isinstance(value, str) else None
    return value if found is None else found


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")  # the user's, and slow to load
    except ImportError:
        raise UsageError("pandas is not installed in this Python", "pip install pandas") from None
