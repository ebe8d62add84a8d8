"""``history list --group``: group runs by a value and aggregate their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..config.metric_goals import known_goals
from ..config.project_folder import Project
from ..errors import UnknownName
from ..history.run_columns import FIELDS
from ..history.run_query import Query
from ..history.store import History
from ..report.run_groups import groups
from . import render
from .columns import column_title, dropped_columns_note, fit_columns

_MAX_SUGGESTIONS = 40
_MAX_COLUMNS = 8
_RUNS_SEARCHED = 500  # maximum number of newest runs whose projects are searched for the goals of metrics


def show_groups(store: History, run_query: Query, name: str, options: dict[str, Any], project: Project | None) -> bool:
    """Print groups of runs, or return False if no run matches. ``options``: output, query, sort, and limit."""
    # Only the projects of these runs are needed.
    runs = store.search(replace(run_query, limit=_RUNS_SEARCHED)) if project is None else []
    found = groups(store, run_query, name, known_goals(project, runs))
    if not found and options["output"] == "table" and options["query"] is None:
        return False
    rows = _sort_groups(found, name, options["sort"])[: options["limit"]]
    if options["output"] != "table" or options["query"] is not None:
        render.emit(rows, output=options["output"], query=options["query"])
    else:
        _print_table(rows, name)
    return True


def _sort_groups(rows: list[dict[str, Any]], name: str, sort: str | None) -> list[dict[str, Any]]:
    """Sort the groups by a metric's mean or by the number of runs. Without ``sort``, keep the order."""
    if sort is None:
        return rows
    by, sign = sort.lstrip("-"), -1 if sort.startswith("-") else 1
    if by == name:
        return rows[::sign]

    def key(row: dict[str, Any]) -> tuple[bool, float]:
        value = row["runs"] if by == "runs" else row["metrics"].get(by, {}).get("mean")
        return value is None, sign * (value or 0)

    if by != "runs" and not any(by in row["metrics"] for row in rows):
        available = dict.fromkeys(metric for row in rows for metric in row["metrics"])
        raise UnknownName("sort key", by, [name, "runs", *list(available)[:_MAX_SUGGESTIONS]])
    return sorted(rows, key=key)


def _print_table(groups: Sequence[dict[str, Any]], name: str) -> None:
    metrics = list(dict.fromkeys(metric for row in groups for metric in row["metrics"]))
    counts = {metric: sum(metric in row["metrics"] for row in groups) for metric in metrics}
    metrics.sort(key=lambda metric: -counts[metric])
    rows = []
    for row in groups:
        means = {
            metric: _format_mean(amount) for metric, amount in row["metrics"].items() if metric not in (name, "runs")
        }
        rows.append({**means, name: "(none)" if row[name] is None else row[name], "runs": row["runs"]})
    others = [metric for metric in metrics if metric not in (name, "runs")][:_MAX_COLUMNS]
    titles = {name: column_title(name, FIELDS), "runs": "Runs", **{metric: metric for metric in others}}
    fitted = fit_columns(titles, rows, render.width(), keep=(name, "runs"), extras=others, unshortened=others)
    render.emit(fitted.rows, output="table", columns=fitted.columns)
    if fitted.dropped:
        render.message(dropped_columns_note(fitted.dropped, choosable=False))
    render.message(
        "metrics: mean ± standard deviation of the last values; use -o json for minimum, maximum, and best run"
    )


def _format_mean(statistics: dict[str, Any]) -> str:
    if statistics["mean"] is None:
        return ""
    spread = "" if statistics["deviation"] is None else f" ± {statistics['deviation']:.2g}"
    return f"{statistics['mean']:.6g}{spread}"
