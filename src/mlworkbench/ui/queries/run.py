"""One run as its page shows it: how it stands, whose child it is, what became of its children, what is at home."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import details_of
from ...fetch import is_home
from ...history.children import children_of_sweep, search_children
from ...history.parameters import of_run
from ...history.query import Query
from ...history.store import History
from ...model import IN_CONTACT, Run
from ...paths import RunFolder
from ...remote.shared.layout import is_outside
from ...report.children import best, judged_by, rank
from ...report.failures import page_of
from ...report.plain import plain
from ...report.records import REMEDY, cause_lines
from ...report.records import ending as ending_of
from ...report.values import shown
from .logs import has_build_log

_MOST = 1000  # children that are shown


@dataclass(frozen=True)
class Child:
    """A run of a sweep, or one that the script made inside."""

    run: Run
    varied: str  # what makes it different from the others
    value: float | None  # of the metric by which they are judged
    best: bool


@dataclass(frozen=True)
class Family:
    """Children, the best one first where there is a metric to tell."""

    metric: str | None
    goal: str
    children: Sequence[Child]
    more: int  # that are not shown


@dataclass(frozen=True)
class Facts:
    """What is known of a run, beside the run itself."""

    run: Run
    folder: RunFolder
    outside: bool  # its script ran by itself
    distant: bool  # it ran, or runs, on another machine
    home: bool  # all its outputs are on this machine
    build_log: bool
    family: Family | None

    @property
    def lost(self) -> str | None:
        """Why it may stand otherwise than it is told here."""
        return None if self.run.contact == IN_CONTACT or self.run.status.final else plain(self.run.contact, 500)

    @property
    def command(self) -> str:
        """What ran, as it would be typed."""
        entry = self.run.spec.entry
        words = {"module": ["-m", entry.name], "command": ["--", entry.name]}.get(entry.kind, [entry.name])
        return plain(shlex.join([*words, *entry.arguments]), 2000)

    @property
    def project(self) -> Path:
        """The folder that it was submitted from; it may be gone."""
        return Path(self.run.spec.project_path)

    def stamp(self) -> object:
        """Differs when the page has to be drawn anew; new values of known metrics do not count."""
        run = self.run
        family = [(one.run.id, one.run.status) for one in self.family.children] if self.family else None
        told = (run.status, run.detail, run.ending, run.contact, run.cause, run.outputs, run.noted, run.tags, run.name)
        return (
            *told,
            str(run.gpu),
            _spark(run),
            tuple(run.metrics),
            len(run.params),
            len(run.files),
            self.home,
            str(family),
        )


def _spark(run: Run) -> str:
    """What is known of a Spark application, less the counts, which change all the time."""
    counts = ("jobs", "stages", "tasks", "executors")
    return str({name: value for name, value in (run.spark or {}).items() if name not in counts})


def look(history: History, prefix: str) -> Facts:
    """``UnknownName`` if there is no such run."""
    run = history.get(prefix)
    folder = history.paths.root.run(run.spec.folder)
    distant = bool(run.spec.compute.address)
    return Facts(
        run=run,
        folder=folder,
        outside=is_outside(run.spec.folder),
        distant=distant,
        home=not distant or is_home(folder) or run.outputs == 0,
        build_log=has_build_log(folder),
        family=_family(history, run),
    )


def _family(history: History, run: Run) -> Family | None:
    sweep = run.spec.sweep
    if sweep is not None:
        children = children_of_sweep(history, run.spec)
    else:
        children = search_children(history, run.spec, Query(hidden=True, limit=_MOST))
    if not children and sweep is None:
        return None
    metric, goal = judged_by(sweep or {}, children)
    winner = best(children, metric, goal)
    ranked = sorted(children, key=lambda one: rank(one, metric, goal))
    told = [_child(one, metric, winner) for one in ranked[:_MOST]]
    return Family(metric, goal, told, len(ranked) - len(told))


def _child(run: Run, metric: str | None, winner: Run | None) -> Child:
    varied = run.spec.varied or of_run(run)
    words = ", ".join(f"{name} {shown(value, 40)}" for name, value in list(varied.items())[:6])
    value = run.metrics.get(metric) if metric else None
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return Child(run, plain(words, 200), number, winner is not None and run.id == winner.id)


def ending(run: Run) -> str:
    """The words behind the status: exit 3, forced, waits for a GPU."""
    return plain(ending_of(run) or "", 200)


def cause(run: Run) -> tuple[list[str], str | None]:
    """Why it failed, in lines, and what to do about it."""
    found = cause_lines(run)
    lines = [text for name, text in found if name != REMEDY and text]
    remedy = [text for name, text in found if name == REMEDY]
    name = page_of(run)
    return lines, "; ".join([*remedy, *([details_of(name)] if name else [])]) or None


def parameters(run: Run) -> list[tuple[str, str]]:
    """Name and value; a switch has none."""
    return [(plain(name, 200), "on" if value is None else shown(value, 500)) for name, value in of_run(run).items()]


def last_values(run: Run) -> list[tuple[str, Any, str]]:
    """Name as it was given, the value, and the value in few words; numbers first."""
    found = [(name, value, shown(value, 120)) for name, value in run.metrics.items()]
    return sorted(found, key=lambda one: not _is_number(one[1]))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
