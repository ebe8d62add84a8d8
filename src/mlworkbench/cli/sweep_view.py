"""Print the children of a sweep as a table, best run first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ..model import Run, Status
from ..report.run_records import outcome, record
from ..report.sweep_report import best, number, rank, ranking_metric
from ..sanitize import plain
from . import output_formats, render

_MAX_CHILDREN = 30  # maximum children in the table


def with_children(parent: Run, children: Sequence[Run]) -> dict[str, Any]:
    """Return the record of a sweep with the records of its children."""
    metric, goal = ranking_metric(parent, children)
    best_run = best(children, metric, goal)
    return {
        **record(parent),
        "best_run_id": best_run.id if best_run else None,
        "children": [record(run) for run in children],
    }


def show_children(parent: Run, children: Sequence[Run]) -> None:
    """Print the children of a sweep as a table, best run first."""
    if not children:
        return
    metric, goal = ranking_metric(parent, children)
    best_run = best(children, metric, goal)
    ordered = sorted(children, key=lambda run: rank(run, metric, goal))
    rows = [_row(run, metric, run is best_run) for run in ordered[:_MAX_CHILDREN]]
    axes = list((parent.spec.sweep or {}).get("axes", ()))
    columns = ["", *axes, "status", *([metric] if metric else []), "run_id"]
    titles = {key: output_formats.heading(key) if key in ("status", "run_id") else key for key in columns}
    grid = output_formats.as_grid([{key: row.get(key) for key in columns} for row in rows], titles)
    if grid is not None:
        render.message("\n" + output_formats.format_table(grid).rstrip("\n"))
    if len(children) > _MAX_CHILDREN:
        render.message(f"and {len(children) - _MAX_CHILDREN} more: mlw history list --parent {parent.id}")
    failed = next((run for run in children if run.status is Status.FAILED), None)
    if failed is not None:
        render.message(f"hint: show the log of the first failed run with 'mlw logs {failed.id}'")
    ranking_line = _ranking_line(parent, children, metric, goal)
    if ranking_line:
        render.message(ranking_line)


def _ranking_line(parent: Run, children: Sequence[Run], metric: str | None, goal: str | None) -> str:
    """Return a line about the best run, or about why there is none."""
    best_run = best(children, metric, goal)
    shown = plain(metric or "")
    if best_run is not None:
        superlative = "highest" if goal == "max" else "lowest"
        value = f"{number(best_run, str(metric)):.6g}"
        return f"best: {best_run.id}  {plain(best_run.spec.name or '')}  {shown} {value} ({superlative})"
    if metric and any(number(run, metric) is not None for run in children if run.status is Status.COMPLETED):
        command = f"mlw history best --metric {shlex.quote(shown)} --goal max --parent {parent.id}"
        return f"no best run: it is not known whether higher or lower values of {shown} are better\nhint: {command}"
    names = plain(", ".join(list(dict.fromkeys(name for run in children for name in run.metrics))[:8]))
    available = f"; available: {names}" if names else ""
    if metric:
        return f"no completed run has the metric {shown}{available}"
    return f"hint: mark the best run with --metric NAME{available}" if names else ""


def _row(run: Run, metric: str | None, is_best: bool) -> dict[str, Any]:
    value = run.metrics.get(metric) if metric else None
    shown = value if isinstance(value, (int, float, str)) else None
    return {
        **run.spec.varied,
        "": "*" if is_best else "",
        "status": outcome(run),
        **({metric: shown} if metric else {}),
        "run_id": run.id,
    }
