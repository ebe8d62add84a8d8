"""The run that was named on the command line: as it stands now, or opened to be followed."""

from __future__ import annotations

from ..errors import UsageError
from ..follow import Follower
from ..history.query import Query
from ..history.store import History
from ..model import Run
from ..runs.lookup import current, holder, named_run, open_follower
from . import render
from .messages import NO_RUNS, SUBMIT_ONE
from .options import maybe_project


def find_run(history: History, prefix: str | None, folder: str | None) -> Run:
    """The run that was named, else the newest of this project; as the history has it."""
    if prefix is not None:
        return get_run(history, prefix, folder)
    project = maybe_project(folder)
    newest = history.search(Query(project.id if project else None, hidden=True, children=False, limit=1))
    if not newest:
        raise UsageError(NO_RUNS, SUBMIT_ONE)
    return newest[0]


def get_run(history: History, prefix: str, folder: str | None) -> Run:
    """The run that was named; if there is none, runs of this project are suggested first."""
    return named_run(history, prefix, lambda: maybe_project(folder))


def look_up(history: History, prefix: str | None, folder: str | None) -> Run:
    """The same, as it stands now."""
    return current(history, find_run(history, prefix, folder))


def open_run(history: History, prefix: str | None, folder: str | None) -> Follower:
    """Opened, with its log and its files; those of a run inside another one are that one's, which is said."""
    run = find_run(history, prefix, folder)
    if run.spec.inside:
        render.message(f"note: run {run.id} is nested in run {run.spec.folder}; showing that run")
        run = holder(history, run)
    return open_follower(history, run)
