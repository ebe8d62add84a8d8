"""Runs that have a value in common, and what their metrics amount to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from ..errors import UnknownName, UsageError
from ..history.parameters import number, of_run
from ..model import Run
from ..sweep import goal_of
from .values import shown

OWN: dict[str, Callable[[Run], Any]] = {
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
_NAMED = 40
_TAKEN = ("runs", "metrics")


def groups(runs: Sequence[Run], name: str) -> list[dict[str, Any]]:
    """A row for each value: numbers first, in their order; last those runs that have none."""
    if name in _TAKEN:
        raise UsageError(f"--group {name} is reserved", f"use params.{name}, tags.{name}, or metrics.{name}")
    together: dict[Any, list[Run]] = {}
    for run in runs:
        together.setdefault(_plain(value_of(run, name)), []).append(run)
    if runs and set(together) == {None} and name not in OWN:
        raise UnknownName("group key", name, _names(runs))
    return [
        {name: value, "runs": len(together[value]), "metrics": _amounts(together[value])}
        for value in sorted(together, key=_order)
    ]


def value_of(run: Run, name: str) -> Any:
    """The run's own, a parameter, a tag, a metric: the first that there is."""
    for start in _TAGS:
        if name.startswith(start):
            return _tag(run, name[len(start) :])
    if name.startswith(_PARAMETER):
        return _parameter(run, name[len(_PARAMETER) :])
    if name.startswith(_METRIC):
        return run.metrics.get(name[len(_METRIC) :])
    if name in OWN:
        return OWN[name](run)
    for find in (_parameter, _tag):
        found = find(run, name)
        if found is not None:
            return found
    return run.metrics.get(name)


def _parameter(run: Run, name: str) -> Any:
    known = of_run(run)
    joined = name.replace("-", "_")
    spelt = next((one for one in (name, *known) if one in known and one.replace("-", "_") == joined), None)
    return None if spelt is None else "yes" if known[spelt] is None else known[spelt]


def _tag(run: Run, name: str) -> str | None:
    """Of ``team=vision`` what stands behind; a tag that is only a name is there."""
    for tag in run.tags:
        for sign in "=:":
            key, found, value = tag.partition(sign)
            if found and key == name:
                return value
    return "yes" if name in run.tags else None


def _plain(value: Any) -> Any:
    """``0.1`` and ``0.10`` are the same value."""
    if value is None or isinstance(value, bool):
        return value
    found = number(value) if isinstance(value, (str, int, float)) else None
    return shown(value, 200) if found is None else found


def _order(value: Any) -> tuple[int, float, str]:
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


def _names(runs: Iterable[Run]) -> list[str]:
    found = dict.fromkeys(
        name
        for run in runs
        for name in (*of_run(run), *(f"tags.{tag.partition('=')[0]}" for tag in run.tags if "=" in tag))
    )
    return [*list(found)[:_NAMED], *OWN]


def _amounts(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    values: dict[str, list[tuple[float, str]]] = {}
    for run in runs:
        for name, value in run.metrics.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                values.setdefault(name, []).append((value, run.id))
    return {name: _amount(name, found) for name, found in values.items()}


def _amount(name: str, found: list[tuple[float, str]]) -> dict[str, Any]:
    goal = goal_of(name)
    numbers = [value for value, _ in found]
    best, best_run = (max if goal == "max" else min)(found, key=lambda one: one[0])
    return {
        "runs": len(numbers),
        "goal": goal,
        "best": best,
        "best_run": best_run,
        "mean": _bounded(fmean, numbers),
        "deviation": _bounded(stdev, numbers) if len(numbers) > 1 else None,
        "least": min(numbers),
        "greatest": max(numbers),
    }


def _bounded(count: Callable[[list[float]], float], numbers: list[float]) -> float | None:
    """Of numbers near the end of what a computer can count to there is no mean."""
    try:
        return count(numbers)
    except OverflowError:
        return None
