"""``history list --group``: runs that have a value in common, and what their metrics amount to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from ..errors import UnknownName, UsageError
from ..history.parameters import number, of_run
from ..model import Run
from ..sweep import goal_of
from . import paper, render
from .show import fit

_OWN: dict[str, Callable[[Run], Any]] = {
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
_TAKEN = ("runs", "metrics")
_NAMED = 40
_COLUMNS = 8


def show_groups(runs: Sequence[Run], name: str, wishes: dict[str, Any]) -> None:
    """``wishes``: output, query, and for the groups sort and limit."""
    # A sweep itself has measured nothing; its children have.
    counted = [run for run in runs if run.spec.sweep is None]
    found = _sorted(groups(counted, name), name, wishes["sort"])[: wishes["limit"]]
    if wishes["output"] != "table" or wishes["query"] is not None:
        render.emit(found, output=wishes["output"], query=wishes["query"])
    elif found:
        _show(found, name)
    else:
        render.message("no runs")


def groups(runs: Sequence[Run], name: str) -> list[dict[str, Any]]:
    """A row for each value: numbers first, in their order; last those runs that have none."""
    if name in _TAKEN:
        raise UsageError(f"{name} is a column of every group", f"write params.{name}, tags.{name} or metrics.{name}")
    together: dict[Any, list[Run]] = {}
    for run in runs:
        together.setdefault(_plain(value_of(run, name)), []).append(run)
    if runs and set(together) == {None} and name not in _OWN:
        raise UnknownName("name to group by", name, _names(runs))
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
    if name in _OWN:
        return _OWN[name](run)
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
    return paper.shown(value, 200) if found is None else found


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
    return [*list(found)[:_NAMED], *_OWN]


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


def _sorted(found: list[dict[str, Any]], name: str, sort: str | None) -> list[dict[str, Any]]:
    """As they are; else by the mean of a metric, or by how many runs there are."""
    if sort is None:
        return found
    by, sign = sort.lstrip("-"), -1 if sort.startswith("-") else 1
    if by == name:
        return found[::sign]

    def key(row: dict[str, Any]) -> tuple[bool, float]:
        value = row["runs"] if by == "runs" else row["metrics"].get(by, {}).get("mean")
        return value is None, sign * (value or 0)

    if by != "runs" and not any(by in row["metrics"] for row in found):
        known = dict.fromkeys(metric for row in found for metric in row["metrics"])
        raise UnknownName("name to sort groups by", by, [name, "runs", *list(known)[:_NAMED]])
    return sorted(found, key=key)


def _show(found: Sequence[dict[str, Any]], name: str) -> None:
    metrics = list(dict.fromkeys(metric for row in found for metric in row["metrics"]))
    counts = {metric: sum(metric in row["metrics"] for row in found) for metric in metrics}
    metrics.sort(key=lambda metric: -counts[metric])
    rows = []
    for row in found:
        means = {metric: _mean(amount) for metric, amount in row["metrics"].items() if metric not in (name, "runs")}
        rows.append({**means, name: "(none)" if row[name] is None else row[name], "runs": row["runs"]})
    keep = (name, "runs")
    columns = fit(
        [*keep, *(metric for metric in metrics if metric not in keep)][: _COLUMNS + 2], rows, render.width(), keep
    )
    render.emit(rows, output="table", columns=columns)
    render.message(
        "metrics are means ± standard deviation of the runs' last values; -o json has best, least and greatest"
    )


def _mean(amount: dict[str, Any]) -> str:
    if amount["mean"] is None:
        return ""
    spread = "" if amount["deviation"] is None else f" ± {amount['deviation']:.2g}"
    return f"{amount['mean']:.6g}{spread}"
