"""Find the run that a command line names, and refresh or open it."""

from __future__ import annotations

from ..errors import UsageError
from ..follow import Follower
from ..history.run_query import Query
from ..history.store import History
from ..model import Run
from ..runs.open_run import current, folder_owner, named_run, open_follower
from . import render
from .messages import NO_RUNS, SUBMIT_HINT
from .options import get_project_or_none


def find_run(history: History, prefix: str | None, folder: str | None) -> Run:
    """Return the named run, or the project's newest run, as recorded in the history."""
    if prefix is not None:
        return get_run(history, prefix, folder)
    project = get_project_or_none(folder)
    newest = history.search(Query(project.id if project else None, hidden=True, children=False, limit=1))
    if not newest:
        raise UsageError(NO_RUNS, SUBMIT_HINT)
    return newest[0]


def get_run(history: History, prefix: str, folder: str | None) -> Run:
    """Return the named run. If it is unknown, suggest runs of this project first."""
    return named_run(history, prefix, lambda: get_project_or_none(folder))


def get_current_run(history: History, prefix: str | None, folder: str | None) -> Run:
    """Return the named or newest run with its current state."""
    return current(history, find_run(history, prefix, folder))


def open_run(history: History, prefix: str | None, folder: str | None) -> Follower:
    """Open the named or newest run with its log and files. For a nested run, open the enclosing run."""
    run = find_run(history, prefix, folder)
    if run.spec.inside:
        render.message(f"note: run {run.id} is nested in run {run.spec.folder}; showing that run")
        run = folder_owner(history, run)
    return open_follower(history, run)
