"""A sweep on the screen: its children come home as they end, and are shown side by side, the best one first."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ..errors import HistoryError
from ..follow import Follower
from ..history.store import History
from ..model import JsonDict, Run, RunSpec, Status
from ..sweep import MORE_IS_BETTER, goal_of
from ..targets.target import Target
from . import formats, render
from .records import outcome, record
from .screen import plain

_LINE = re.compile(rb"^\d+/\d+ .*?(\S+)$", re.MULTILINE)
_SHOWN = 30  # children in the table
_HELD_OUT = re.compile(r"(^|[^a-z])(val|valid|validation|test|eval|dev)([^a-z]|$)")


class Children:
    """Those of one sweep."""

    def __init__(self, history: History, parent: RunSpec, target: Target) -> None:
        self._history = history
        self._parent = parent
        self._target = target
        self._names = dict.fromkeys((parent.sweep or {}).get("children", ()))
        self._rest = b""

    def heard(self, data: bytes) -> None:
        """More of the parent's log: children that it says have ended are taken in, and their outputs fetched."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            found = _LINE.match(line)
            name = found[1].decode(errors="replace") if found else ""
            if name in self._names:
                self._bring(name)

    def bring_all(self) -> None:
        """As they stand now."""
        for name in self._names:
            self._bring(name)

    def _bring(self, name: str) -> None:
        from .view import fetch_outputs  # noqa: PLC0415 - which needs this module

        try:
            run = self._history.known(name)[0]
        except HistoryError:
            return  # somebody removed it
        if run.status.final:
            return
        follower = Follower(self._history, run, self._target)
        follower.refresh()
        if self._target.host.distant and follower.run.status.final:
            for _ in follower.chunks(live=False):
                continue
            fetch_outputs(follower)

    def runs(self) -> list[Run]:
        """In the order in which they were made."""
        found = []
        for name in self._names:
            try:
                found.append(self._history.known(name)[0])
            except HistoryError:
                continue
        return found


def children_at_home(history: History, parent: Run) -> list[Run]:
    """The runs of a sweep as they are known here."""
    return Children(history, parent.spec, None).runs()  # type: ignore[arg-type]  # nobody is asked


def with_children(parent: Run, children: Sequence[Run]) -> dict[str, Any]:
    """The record of a sweep, its children in it."""
    metric, goal = judged_by(parent.spec.sweep or {}, children)
    first = best(children, metric, goal)
    return {**record(parent), "best_run_id": first.id if first else None, "children": [record(run) for run in children]}


def judged_by(sweep: JsonDict, children: Sequence[Run]) -> tuple[str | None, str]:
    """The metric that tells the best child, and whether more of it is better: as asked for, else the likeliest."""
    asked = sweep.get("metric")
    if asked:
        return asked, sweep.get("goal") or goal_of(asked)
    done = [run for run in children if run.status is Status.COMPLETED]
    common = [name for name in done[0].metrics if all(_number(run, name) is not None for run in done)] if done else []
    ranked = sorted(common, key=lambda name: (-_likely(name), name))
    if not ranked or (len(ranked) > 1 and not _likely(ranked[0])):
        return None, "max"
    return ranked[0], goal_of(ranked[0])


def _likely(name: str) -> int:
    """How likely it is that this metric is what a sweep is for."""
    low = name.lower()
    quality = 2 if MORE_IS_BETTER.search(low) else 1 if goal_of(low) == "min" else 0
    return quality + (3 if quality and _HELD_OUT.search(low) else 0)


def best(children: Sequence[Run], metric: str | None, goal: str) -> Run | None:
    done = [run for run in children if metric and run.status is Status.COMPLETED and _number(run, metric) is not None]
    return min(done, key=lambda run: rank(run, metric, goal)) if done else None


def rank(run: Run, metric: str | None, goal: str) -> float:
    """Less is better; the end of the list is for those that have no such number, or did not get through."""
    value = _number(run, metric) if metric and run.status is Status.COMPLETED else None
    return math.inf if value is None else -value if goal == "max" else value


def _number(run: Run, name: str) -> float | None:
    value = run.metrics.get(name)
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf
    return float(value) if known else None  # type: ignore[arg-type]


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
    grid = formats.as_grid([{key: row.get(key) for key in columns} for row in rows], columns)
    if grid is not None:
        render.message("\n" + formats.align(grid).rstrip("\n"))
    if len(children) > _SHOWN:
        render.message(f"and {len(children) - _SHOWN} more: mlw history list --parent {parent.id}")
    failed = next((run for run in children if run.status is Status.FAILED), None)
    if failed is not None:
        render.message(f"hint: mlw logs {failed.id} shows what the first one that failed said")
    if first is not None:
        words = "highest" if goal == "max" else "lowest"
        value = f"{_number(first, str(metric)):.6g}"
        render.message(f"best: {first.id}  {plain(first.spec.name or '')}  {plain(str(metric))} {value} ({words})")
    elif metric:
        render.message(f"no run that got through has a number called {plain(metric)}")
    elif any(run.metrics for run in children):
        names = list(dict.fromkeys(name for run in children for name in run.metrics))
        render.message(f"hint: --metric NAME marks the best one; there is {plain(', '.join(names[:8]))}")


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
