"""Runs and metrics as pandas DataFrames. pandas is an optional dependency that is used only here."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from ..errors import UsageError
from ..model import Run
from .parameters import number, run_parameters
from .series.points import NO_STEP, Points

DataFrame = Any  # pandas.DataFrame; pandas is optional
_RUN_COLUMNS = (
    *("run_id", "name", "status", "script_name", "target", "project"),
    *("start_time", "end_time", "duration", "gpu", "parent_run_id"),
)


def runs_frame(runs: Iterable[Run]) -> DataFrame:
    """Return one row per run, with columns such as ``metrics.loss``, ``params.lr``, and ``tags.team``."""
    pandas = _pandas()
    frame = pandas.DataFrame([_row(run) for run in runs])
    return frame if len(frame.columns) else pandas.DataFrame(columns=list(_RUN_COLUMNS))


def points_frame(series: Mapping[str, Points]) -> DataFrame:
    """Return one row per point, with the columns name, step, time, and value."""
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
        **dict(zip(_RUN_COLUMNS, _run_values(run), strict=True)),
        **{f"metrics.{name}": value for name, value in run.metrics.items()},
        **{f"params.{name}": _param(value) for name, value in run_parameters(run).items()},
        **{f"tags.{name}": value if equals else True for name, equals, value in tags},
    }


def _run_values(run: Run) -> tuple[Any, ...]:
    spec = run.spec
    return (
        run.id,
        run.name,
        run.status.value,
        spec.entry.name,
        spec.compute.name,
        spec.project_name,
        _datetime(run.started),
        _datetime(run.ended),
        run.duration,
        (run.gpu or {}).get("used"),
        spec.parent,
    )


def _param(value: Any) -> Any:
    """Return the value of a parameter: a number if the string is numeric, True for a flag."""
    if value is None:
        return True
    parsed = number(value) if isinstance(value, str) else None
    return value if parsed is None else parsed


def _datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")  # optional, and slow to import
    except ImportError:
        raise UsageError("pandas is not installed in this Python", "pip install pandas") from None
