"""Data for the run page: state, child runs, and availability of outputs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import details_of
from ...fetch_outputs import are_outputs_downloaded
from ...history.child_runs import children_of_sweep, search_children
from ...history.parameters import run_parameters
from ...history.run_query import Query
from ...history.store import History
from ...model import IN_CONTACT, Run
from ...paths import RunFolder
from ...remote.shared.layout import is_untracked
from ...report.failure_report import page_of
from ...report.run_records import REMEDY, cause_lines
from ...report.run_records import ending as ending_of
from ...report.sweep_report import best, rank, ranking_metric
from ...report.value_format import format_value
from ...runfiles.mlflow_sqlite import has_database
from ...sanitize import plain
from .logs import has_build_log

_MAX_CHILDREN = 1000  # maximum number of child runs to show


@dataclass(frozen=True)
class Child:
    """Child run of a sweep, or nested run created by the script."""

    run: Run
    varied: str  # the parameters that distinguish it
    value: float | None  # value of the ranking metric
    best: bool


@dataclass(frozen=True)
class ChildRuns:
    """Child runs. If there is a metric, the best one is first."""

    metric: str | None
    goal: str | None  # min, max, or None if unknown
    children: Sequence[Child]
    more: int  # number of hidden child runs


@dataclass(frozen=True)
class RunFacts:
    """Run with the data that its page needs."""

    run: Run
    folder: RunFolder
    is_untracked: bool  # the script was started without mlw
    is_remote: bool  # runs or ran on another machine
    has_all_outputs: bool  # all its outputs are on this machine
    build_log: bool
    child_runs: ChildRuns | None
    has_mlflow_database: bool = False  # traces and registered models of the script

    @property
    def contact_problem(self) -> str | None:
        """Reason why the displayed state may be outdated."""
        return None if self.run.contact == IN_CONTACT or self.run.status.final else plain(self.run.contact, 500)

    @property
    def command(self) -> str:
        """The command line of the run."""
        entry = self.run.spec.entry
        arguments = {"module": ["-m", entry.name], "command": ["--", entry.name]}.get(entry.kind, [entry.name])
        return plain(shlex.join([*arguments, *entry.arguments]), 2000)

    @property
    def project(self) -> Path:
        """The folder from which the run was submitted; it may no longer exist."""
        return Path(self.run.spec.project_path)

    def stamp(self) -> object:
        """Return a value that changes when the page must be redrawn.

        New metric values alone do not change it.
        """
        run = self.run
        children = [(child.run.id, child.run.status) for child in self.child_runs.children] if self.child_runs else None
        state = (run.status, run.detail, run.ending, run.contact, run.cause, run.outputs, run.noted, run.tags, run.name)
        return (
            *state,
            str(run.gpu),
            str(run.job),
            _spark(run),
            tuple(run.metrics),
            len(run.params),
            len(run.files),
            len(run.told_tags),
            self.has_all_outputs,
            str(children),
        )


def _spark(run: Run) -> str:
    """Return the state of a Spark application without its constantly changing counts."""
    counts = ("jobs", "stages", "tasks", "executors")
    return str({name: value for name, value in (run.spark or {}).items() if name not in counts})


def load_run(history: History, prefix: str) -> RunFacts:
    """Load a run; raise ``UnknownName`` if it does not exist."""
    run = history.get(prefix)
    folder = history.paths.root.run(run.spec.folder)
    is_remote = bool(run.spec.compute.address)
    return RunFacts(
        run=run,
        folder=folder,
        is_untracked=is_untracked(run.spec.folder),
        is_remote=is_remote,
        has_all_outputs=not is_remote or are_outputs_downloaded(folder) or run.outputs == 0,
        build_log=has_build_log(folder),
        child_runs=_child_runs(history, run),
        has_mlflow_database=has_database(folder),
    )


def _child_runs(history: History, run: Run) -> ChildRuns | None:
    sweep = run.spec.sweep
    if sweep is not None:
        children = children_of_sweep(history, run.spec)
    else:
        children = search_children(history, run.spec, Query(hidden=True, limit=_MAX_CHILDREN))
    if not children and sweep is None:
        return None
    metric, goal = ranking_metric(run, children)
    winner = best(children, metric, goal)
    ranked = sorted(children, key=lambda child: rank(child, metric, goal))
    shown_children = [_child(child, metric, winner) for child in ranked[:_MAX_CHILDREN]]
    return ChildRuns(metric, goal, shown_children, len(ranked) - len(shown_children))


def _child(run: Run, metric: str | None, winner: Run | None) -> Child:
    varied = run.spec.varied or run_parameters(run)
    text = ", ".join(f"{name} {format_value(value, 40)}" for name, value in list(varied.items())[:6])
    value = run.metrics.get(metric) if metric else None
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return Child(run, plain(text, 200), number, winner is not None and run.id == winner.id)


def ending(run: Run) -> str:
    """Return the text after the status, such as ``exit 3``, ``forced``, or ``waits for a GPU``."""
    return plain(ending_of(run) or "", 200)


def cause(run: Run) -> tuple[list[str], str | None]:
    """Return the cause of a failure, as lines, and the remedy."""
    labeled_lines = cause_lines(run)
    lines = [text for name, text in labeled_lines if name != REMEDY and text]
    remedy = [text for name, text in labeled_lines if name == REMEDY]
    name = page_of(run)
    return lines, "; ".join([*remedy, *([details_of(name)] if name else [])]) or None


def parameters(run: Run) -> list[tuple[str, str]]:
    """Return the names and values of the parameters. The value of a flag is ``on``."""
    return [
        (plain(name, 200), "on" if value is None else format_value(value, 500))
        for name, value in run_parameters(run).items()
    ]


def last_values(run: Run) -> list[tuple[str, Any, str]]:
    """Return the original name, value, and formatted value of each metric, numbers first."""
    values = [(name, value, format_value(value, 120)) for name, value in run.metrics.items()]
    return sorted(values, key=lambda item: not _is_number(item[1]))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
