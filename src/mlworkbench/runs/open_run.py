"""Finding a run by its name and opening it. Some runs have no process of their own."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from ..config.project import Project
from ..errors import UnknownName, UsageError
from ..follow import Follower
from ..history.query import Query
from ..history.store import Ambiguous, History
from ..model import Run
from ..remote.shared.layout import is_outside
from ..targets.opening import open_target

_SUGGESTED, _LISTED = 200, 5  # runs of the project that are compared, and listed


def named_run(history: History, name: str, project: Callable[[], Project | None]) -> Run:
    """Return the run with this ID, unique part of an ID, or name; an error suggests runs of ``project`` first."""
    try:
        return history.get(name)
    except Ambiguous:
        raise
    except UnknownName:
        here = project()
        recent = history.search(Query(here.id, hidden=True, limit=_SUGGESTED)) if here else []
        if not recent:
            raise
        names = [run.id for run in recent]
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "list the runs of this project with 'mlw history list'"
        raise UnknownName("run", name, names[:_LISTED], hint) from None


def current(history: History, run: Run) -> Run:
    """Return the current state of a run; its machine is asked if the state may have changed."""
    if run.status.final or is_outside(run.id):  # every look at the history is one at those outside
        return run
    if not run.spec.inside:
        return _refreshed(history, run)
    if not is_outside(run.spec.folder):
        _refreshed(history, holder(history, run))
    return history.known(run.id)[0]


def _refreshed(history: History, run: Run) -> Run:
    follower = open_follower(history, run)
    try:
        return follower.refresh()
    finally:
        follower.target.host.close()


def holder(history: History, run: Run) -> Run:
    """Return the run whose folder contains this one: itself, unless a script created it inside its run."""
    return history.known(run.spec.folder)[0] if run.spec.inside else run


def refuse_outside(run: Run, what: str, hint: str) -> None:
    """Raise ``UsageError`` for a script that ran without mlw: only what it recorded is known."""
    if is_outside(run.spec.folder):
        raise UsageError(f"run {run.id} was not submitted by mlw: {what}", hint)


def open_follower(history: History, run: Run) -> Follower:
    """Open the target of a run and follow the run there."""
    return Follower(history, run, open_target(run.spec.compute, history.paths))
