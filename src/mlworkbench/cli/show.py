"""Runs as results: whole for programs, tidied for people."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from ..model import Run
from . import render
from .records import for_people, outcome, record

_METRICS = 8  # as many columns of a list at most
_GAP = 3
# What goes first when a terminal is narrow; run_id and status never do.
_DISPENSABLE = ("tags", "name", "target", "arguments", "start_time_utc", "script_name", "duration", "age")


def show_run(run: Run, output: str, query: str | None) -> None:
    facts = record(run)
    tidy = output == "table" and query is None
    render.emit({**for_people(facts), **_odd(run)} if tidy else facts, output=output, query=query)


def show_runs(runs: Sequence[Run], output: str, query: str | None, columns: Sequence[str]) -> None:
    """A list; its table has the columns that fit, with the metrics that most of the runs have."""
    if output != "table" or query is not None:
        render.emit([record(run) for run in runs], output=output, query=query)
        return
    if not runs:
        render.message("no runs")
        return
    rows = [_row(run) for run in runs]
    metrics = _common(runs)
    shown = _fit([*columns[:2], *metrics[:_METRICS], *columns[2:]], rows, render.width())
    render.emit(rows, output=output, columns=shown)
    hidden = [name for name in metrics if name not in shown]
    if hidden:
        render.message(f"and {len(hidden)} more metrics; see them with -o json, or mlw history info RUN")


def _row(run: Run) -> dict[str, Any]:
    facts = {**for_people(record(run)), **_odd(run)}
    facts["status"] = outcome(run)
    if run.spec.entry.arguments:
        facts["arguments"] = shlex.join(run.spec.entry.arguments)
    if run.spec.tags:
        facts["tags"] = ", ".join(run.spec.tags)
    return facts


def _odd(run: Run) -> dict[str, str]:
    """NaN and infinities, which are nothing to a query and yet worth seeing."""
    return {name: str(value) for name, value in run.metrics.items() if isinstance(value, float) and not isfinite(value)}


def _common(runs: Sequence[Run]) -> list[str]:
    """Names of plain metrics, the most frequent first; one that is named like a key of ours is not a column."""
    keys = set(record(replace(runs[0], metrics={})))
    counts = Counter(
        name
        for run in runs
        for name, value in run.metrics.items()
        if isinstance(value, (int, float, str)) and name not in keys
    )
    return [name for name, _ in counts.most_common()]


def _fit(columns: list[str], rows: Sequence[dict[str, Any]], width: int | None) -> list[str]:
    """The columns that have something to show and fit into the width."""
    shown = [name for name in columns if name in ("run_id", "status") or any(row.get(name) is not None for row in rows)]
    need = {name: max(len(name), *(len(_text(row.get(name))) for row in rows)) + _GAP for name in shown}
    metrics = [name for name in shown if name not in _DISPENSABLE and name not in ("run_id", "status")]
    for name in (*_DISPENSABLE, *reversed(metrics)):
        if width is None or sum(need[one] for one in shown) <= width:
            break
        if name in shown:
            shown.remove(name)
    return shown


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
