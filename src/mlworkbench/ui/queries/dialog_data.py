"""What the dialogs about runs show: how to submit a run again, what deleting takes away, tags and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...history.children import search_children
from ...history.query import Query
from ...history.store import History
from ...remote.shared.disk_tally import Tally
from ...resubmit import Again as Again
from ...resubmit import again as again
from ...resubmit import request_again as request_again
from ...resubmit import submit_words as submit_words


@dataclass(frozen=True)
class Weight:
    """What deleting runs takes away."""

    runs: list[str]
    children: int
    size: int


def weight(history: History, ids: Sequence[str]) -> Weight:
    """The children of sweeps go with them."""
    named = [history.get(one) for one in ids]
    below = [
        child.id
        for run in named
        if run.spec.sweep is not None
        for child in search_children(history, run.spec, Query(hidden=True, inside=False))
    ]
    tally = Tally()
    for name in {*(run.id for run in named), *below}:
        tally.add(history.paths.root.run(name).path)
    return Weight([run.id for run in named], len(below), tally.own)


def tags(history: History, ids: Sequence[str]) -> list[str]:
    """All that these runs have."""
    return list(dict.fromkeys(tag for one in ids for tag in history.get(one).tags))


def told(history: History, run_id: str) -> tuple[str, str, str]:
    """A run's id, its name, and the note on it."""
    run = history.get(run_id)
    return run.id, run.name or "", run.noted.note or ""
