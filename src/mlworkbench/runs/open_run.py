"""Find a run by its name and open it. A nested run is followed through the run that contains it."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from ..config.project_folder import Project
from ..errors import UnknownName, UsageError
from ..follow import Follower
from ..history.run_query import Query
from ..history.store import AmbiguousName, History
from ..model import Run
from ..remote.shared.layout import is_untracked
from ..targets.target_factory import open_target

_SUGGESTED, _LISTED = 200, 5  # maximum runs to compare, and to list


def named_run(history: History, name: str, project: Callable[[], Project | None]) -> Run:
    """Return the run with this ID, unique part of an ID, or name; errors suggest runs of ``project``."""
    try:
        return history.get(name)
    except AmbiguousName:
        raise
    except UnknownName:
        current_project = project()
        recent = history.search(Query(current_project.id, hidden=True, limit=_SUGGESTED)) if current_project else []
        if not recent:
            raise
        names = [run.id for run in recent]
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "list the runs of this project with 'mlw history list'"
        raise UnknownName("run", name, names[:_LISTED], hint) from None


def current(history: History, run: Run) -> Run:
    """Return the current state of a run, querying its machine if the state may have changed."""
    if run.status.final or is_untracked(run.id):  # the history reads the files of untracked runs
        return run
    if not run.spec.inside:
        return _refreshed(history, run)
    if not is_untracked(run.spec.folder):
        _refreshed(history, folder_owner(history, run))
    return history.load(run.id)[0]


def _refreshed(history: History, run: Run) -> Run:
    follower = open_follower(history, run)
    try:
        return follower.refresh()
    finally:
        follower.target.host.close()


def folder_owner(history: History, run: Run) -> Run:
    """Return the run whose folder contains this run: the run itself, unless it is nested."""
    return history.load(run.spec.folder)[0] if run.spec.inside else run


def refuse_untracked(run: Run, what: str, hint: str) -> None:
    """Raise ``UsageError`` for a script that ran without mlw: only the data that it logged exists."""
    if is_untracked(run.spec.folder):
        raise UsageError(f"run {run.id} was not submitted by mlw: {what}", hint)


def open_follower(history: History, run: Run) -> Follower:
    """Open the target of a run and follow the run there."""
    return Follower(history, run, open_target(run.spec.compute, history.paths))
