"""Group runs by a value, with statistics on their metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from ..errors import UnknownName, UsageError
from ..history.parameters import number, run_parameters
from ..metric_goal import MAX, find_goal
from ..model import Run
from .value_format import format_value

RUN_FIELDS: dict[str, Callable[[Run], Any]] = {
    "status": lambda run: run.status.value,
    "target": lambda run: run.spec.compute.name,
    "script_name": lambda run: run.spec.entry.name,
    "script": lambda run: run.spec.entry.name,
    "run_configuration": lambda run: run.spec.runconfig or None,
    "project": lambda run: run.spec.project_name,
    "name": lambda run: run.name,
    "user_id": lambda run: run.spec.user,
    "parent_run_id": lambda run: run.spec.parent,
    "ending": lambda run: run.ending,
    "exit_code": lambda run: run.exit,
    "gpu": lambda run: (run.gpu or {}).get("used"),
    "CommitId": lambda run: run.spec.git.commit if run.spec.git else None,
    "tags": lambda run: ", ".join(run.tags) or None,
}
_PARAMETER, _TAGS, _METRIC = "params.", ("tags.", "tag."), "metrics."
_MAX_NAMES = 40
_RESERVED = ("runs", "metrics")


def groups(runs: Sequence[Run], name: str) -> list[dict[str, Any]]:
    """Return a row for each value: sorted numbers first, runs without a value last."""
    if name in _RESERVED:
        raise UsageError(f"--group {name} is reserved", f"use params.{name}, tags.{name}, or metrics.{name}")
    runs_by_value: dict[Any, list[Run]] = {}
    for run in runs:
        runs_by_value.setdefault(_normalize(value_of(run, name)), []).append(run)
    if runs and set(runs_by_value) == {None} and name not in RUN_FIELDS:
        raise UnknownName("group key", name, _group_names(runs))
    return [
        {name: value, "runs": len(runs_by_value[value]), "metrics": _metric_statistics(runs_by_value[value])}
        for value in sorted(runs_by_value, key=_sort_key)
    ]


def value_of(run: Run, name: str) -> Any:
    """Look up a name in the run fields, parameters, tags, and metrics, in this order."""
    for prefix in _TAGS:
        if name.startswith(prefix):
            return _tag(run, name[len(prefix) :])
    if name.startswith(_PARAMETER):
        return _parameter(run, name[len(_PARAMETER) :])
    if name.startswith(_METRIC):
        return run.metrics.get(name[len(_METRIC) :])
    if name in RUN_FIELDS:
        return RUN_FIELDS[name](run)
    for find in (_parameter, _tag):
        value = find(run, name)
        if value is not None:
            return value
    return run.metrics.get(name)


def _parameter(run: Run, name: str) -> Any:
    parameters = run_parameters(run)
    normalized = name.replace("-", "_")
    spelling = next(
        (
            candidate
            for candidate in (name, *parameters)
            if candidate in parameters and candidate.replace("-", "_") == normalized
        ),
        None,
    )
    return None if spelling is None else "yes" if parameters[spelling] is None else parameters[spelling]


def _tag(run: Run, name: str) -> str | None:
    """Return ``vision`` for ``team=vision``, or "yes" for a tag without a value."""
    for tag in run.tags:
        for sign in "=:":
            key, separator, value = tag.partition(sign)
            if separator and key == name:
                return value
    return "yes" if name in run.tags else None


def _normalize(value: Any) -> Any:
    """Normalize a value, so that ``0.1`` and ``0.10`` are the same."""
    if value is None or isinstance(value, bool):
        return value
    parsed = number(value) if isinstance(value, (str, int, float)) else None
    return format_value(value, 200) if parsed is None else parsed


def _sort_key(value: Any) -> tuple[int, float, str]:
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


def _group_names(runs: Iterable[Run]) -> list[str]:
    names = dict.fromkeys(
        name
        for run in runs
        for name in (*run_parameters(run), *(f"tags.{tag.partition('=')[0]}" for tag in run.tags if "=" in tag))
    )
    return [*list(names)[:_MAX_NAMES], *RUN_FIELDS]


def _metric_statistics(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    values: dict[str, list[tuple[float, str]]] = {}
    for run in runs:
        for name, value in run.metrics.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                values.setdefault(name, []).append((value, run.id))
    return {name: _statistics(pairs, find_goal(name, runs)) for name, pairs in values.items()}


def _statistics(pairs: list[tuple[float, str]], goal: str | None) -> dict[str, Any]:
    numbers = [value for value, _ in pairs]
    best: float | None = None
    best_run: str | None = None
    if goal:
        best, best_run = (max if goal == MAX else min)(pairs, key=lambda pair: pair[0])
    return {
        "runs": len(numbers),
        "goal": goal,
        "best": best,
        "best_run": best_run,
        "mean": _compute(fmean, numbers),
        "deviation": _compute(stdev, numbers) if len(numbers) > 1 else None,
        "least": min(numbers),
        "greatest": max(numbers),
    }


def _compute(function: Callable[[list[float]], float], numbers: list[float]) -> float | None:
    """Apply a function. Return None if the numbers are too large for it."""
    try:
        return function(numbers)
    except OverflowError:
        return None
