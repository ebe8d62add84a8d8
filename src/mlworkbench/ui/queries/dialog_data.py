"""Data for run dialogs: resubmission, deletion, tags, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...history.child_runs import search_children
from ...history.run_query import Query
from ...history.store import History
from ...remote.shared.disk_totals import DiskUsage
from ...resubmit import PreviousRun as PreviousRun
from ...resubmit import find_previous_run as find_previous_run
from ...resubmit import rerun_request as rerun_request
from ...resubmit import submit_words as submit_words


@dataclass(frozen=True)
class DeletionSize:
    """Runs to delete, with the number of their child runs and the disk space that is freed."""

    runs: list[str]
    children: int
    size: int


def deletion_size(history: History, ids: Sequence[str]) -> DeletionSize:
    """Compute what is deleted with these runs, including child runs of sweeps."""
    runs = [history.get(run_id) for run_id in ids]
    children = [
        child.id
        for run in runs
        if run.spec.sweep is not None
        for child in search_children(history, run.spec, Query(hidden=True, inside=False))
    ]
    tally = DiskUsage()
    for name in {*(run.id for run in runs), *children}:
        tally.add(history.paths.root.run(name).path)
    return DeletionSize([run.id for run in runs], len(children), tally.exclusive)


def tags(history: History, ids: Sequence[str]) -> list[str]:
    """Return all tags of these runs."""
    return list(dict.fromkeys(tag for run_id in ids for tag in history.get(run_id).tags))


def name_and_note(history: History, run_id: str) -> tuple[str, str, str]:
    """Return a run's ID, name, and note."""
    run = history.get(run_id)
    return run.id, run.name or "", run.noted.note or ""
