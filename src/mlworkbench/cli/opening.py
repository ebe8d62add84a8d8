"""The run that was named: as it stands now, or opened to be followed. Some runs have no process of their own."""

from __future__ import annotations

from difflib import get_close_matches

from ..errors import UnknownName, UsageError
from ..follow import Follower
from ..history.query import Query
from ..history.store import Ambiguous, History
from ..model import Run
from ..remote.folder import is_outside
from ..targets.opening import open_target
from . import render
from .messages import NO_RUNS, SUBMIT_ONE
from .options import maybe_project

_SUGGESTED, _LISTED = 200, 5  # runs of the project that are compared, and listed


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
    try:
        return history.get(prefix)
    except Ambiguous:
        raise
    except UnknownName:
        project = maybe_project(folder)
        recent = history.search(Query(project.id, hidden=True, limit=_SUGGESTED)) if project else []
        if not recent:
            raise
        names = [run.id for run in recent]
        near = get_close_matches(prefix, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "list the runs of this project with 'mlw history list'"
        raise UnknownName("run", prefix, names[:_LISTED], hint) from None


def look_up(history: History, prefix: str | None, folder: str | None) -> Run:
    """The same, as it stands now."""
    return current(history, find_run(history, prefix, folder))


def current(history: History, run: Run) -> Run:
    """A run as it stands now; the machine is asked where that may have changed."""
    if run.status.final or is_outside(run.id):  # every look at the history is one at those outside
        return run
    if not run.spec.inside:
        return _follower(history, run).refresh()
    if not is_outside(run.spec.folder):
        _follower(history, holder(history, run)).refresh()
    return history.known(run.id)[0]


def open_run(history: History, prefix: str | None, folder: str | None) -> Follower:
    """Opened, with its log and its files; those of a run inside another one are that one's, which is said."""
    run = find_run(history, prefix, folder)
    if run.spec.inside:
        render.message(f"note: run {run.id} is nested in run {run.spec.folder}; showing that run")
        run = holder(history, run)
    return _Outside(history, run) if is_outside(run.id) else _follower(history, run)


def holder(history: History, run: Run) -> Run:
    """The run whose folder holds this one."""
    return history.known(run.spec.folder)[0] if run.spec.inside else run


def refuse_outside(run: Run, what: str, hint: str) -> None:
    """Of a script that ran by itself, only what it recorded is known."""
    if is_outside(run.spec.folder):
        raise UsageError(f"run {run.id} was not submitted by mlw: {what}", hint)


def _follower(history: History, run: Run) -> Follower:
    return Follower(history, run, open_target(run.spec.compute, history.paths))


class _Outside(Follower):
    """Nobody looks after it: how it stands is seen by every look at the history."""

    def __init__(self, history: History, run: Run) -> None:
        super().__init__(history, run, open_target(run.spec.compute, history.paths))

    def refresh(self, deadline: float | None = None) -> Run:
        self.run = self.history.get(self.run.id)
        return self.run
