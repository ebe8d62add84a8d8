"""A sweep on the screen: its children are shown side by side, the best one first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import Run, Status
from ..report.children import best, judged_by, number, rank
from ..report.plain import plain
from ..report.records import outcome, record
from . import formats, render

_SHOWN = 30  # children in the table


def with_children(parent: Run, children: Sequence[Run]) -> dict[str, Any]:
    """The record of a sweep, its children in it."""
    metric, goal = judged_by(parent.spec.sweep or {}, children)
    first = best(children, metric, goal)
    return {**record(parent), "best_run_id": first.id if first else None, "children": [record(run) for run in children]}


def show_children(parent: Run, children: Sequence[Run]) -> None:
    """The table of a sweep, its best run first."""
    if not children:
        return
    metric, goal = judged_by(parent.spec.sweep or {}, children)
    first = best(children, metric, goal)
    ordered = sorted(children, key=lambda run: rank(run, metric, goal))
    rows = [_row(run, metric, run is first) for run in ordered[:_SHOWN]]
    axes = list((parent.spec.sweep or {}).get("axes", ()))
    columns = ["", *axes, "status", *([metric] if metric else []), "run_id"]
    titles = {key: formats.heading(key) if key in ("status", "run_id") else key for key in columns}
    grid = formats.as_grid([{key: row.get(key) for key in columns} for row in rows], titles)
    if grid is not None:
        render.message("\n" + formats.align(grid).rstrip("\n"))
    if len(children) > _SHOWN:
        render.message(f"and {len(children) - _SHOWN} more: mlw history list --parent {parent.id}")
    failed = next((run for run in children if run.status is Status.FAILED), None)
    if failed is not None:
        render.message(f"hint: show the log of the first failed run with 'mlw logs {failed.id}'")
    if first is not None:
        words = "highest" if goal == "max" else "lowest"
        value = f"{number(first, str(metric)):.6g}"
        render.message(f"best: {first.id}  {plain(first.spec.name or '')}  {plain(str(metric))} {value} ({words})")
    elif metric:
        render.message(f"no completed run has the metric {plain(metric)}")
    elif any(run.metrics for run in children):
        names = list(dict.fromkeys(name for run in children for name in run.metrics))
        render.message(f"hint: mark the best run with --metric NAME; available: {plain(', '.join(names[:8]))}")


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
