"""``history list --group``: runs that have a value in common, and what their metrics amount to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UnknownName
from ..model import Run
from ..report.groups import OWN, groups
from . import render
from .columns import dropped_line, fit, title

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
        render.message("no runs to group")


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
        raise UnknownName("sort key", by, [name, "runs", *list(known)[:_NAMED]])
    return sorted(found, key=key)


def _show(found: Sequence[dict[str, Any]], name: str) -> None:
    metrics = list(dict.fromkeys(metric for row in found for metric in row["metrics"]))
    counts = {metric: sum(metric in row["metrics"] for row in found) for metric in metrics}
    metrics.sort(key=lambda metric: -counts[metric])
    rows = []
    for row in found:
        means = {metric: _mean(amount) for metric, amount in row["metrics"].items() if metric not in (name, "runs")}
        rows.append({**means, name: "(none)" if row[name] is None else row[name], "runs": row["runs"]})
    others = [metric for metric in metrics if metric not in (name, "runs")][:_COLUMNS]
    titles = {name: title(name, OWN), "runs": "Runs", **{metric: metric for metric in others}}
    fitted = fit(titles, rows, render.width(), keep=(name, "runs"), extras=others, whole=others)
    render.emit(fitted.rows, output="table", columns=fitted.columns)
    if fitted.dropped:
        render.message(dropped_line(fitted.dropped, choosable=False))
    render.message(
        "metrics: mean ± standard deviation of the last values; use -o json for minimum, maximum, and best run"
    )


def _mean(amount: dict[str, Any]) -> str:
    if amount["mean"] is None:
        return ""
    spread = "" if amount["deviation"] is None else f" ± {amount['deviation']:.2g}"
    return f"{amount['mean']:.6g}{spread}"
