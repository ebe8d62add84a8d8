"""What can go from our folder on another machine: asked for first, with its bytes; removed only when asked for.

The machine itself knows what its own runs need. Of runs only those may go that have ended and whose log and outputs
are here: another laptop may not have fetched its own yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..history.query import Query
from ..history.store import History
from ..hosts.host import Host
from ..hosts.replies import LARGEST, Reply
from ..model import Run
from ..remote.folder import RunFolder
from .mirror import Mirror

YOUNG = 3600.0  # code that came in the last hour stays: a submit may be about to use it
KINDS = {
    "runs": "runs",
    "snapshots": "lists of code",
    "blobs": "files of code",
    "spares": "spare working copies",
    "lib": "programs of mlw",
    "envs": "environments",
    "caches": "packages for environments",
}


@dataclass(frozen=True)
class Part:
    """One kind of things there: how many, and how many of them can go."""

    kind: str
    things: int
    size: int
    free_things: int
    free_size: int


class CleanerElsewhere:
    """Asks, and frees. ``is_there`` tells whether a run of the history belongs to this machine."""

    def __init__(self, history: History, host: Host, is_there: Callable[[Run], bool]) -> None:
        self._host = host
        runs = [run for run in history.search(Query(hidden=True, inside=False)) if is_there(run)]
        own = [run for run in runs if run.spec.origin is None]  # the others are another laptop's to delete
        self._ended = [run.id for run in own if is_home(run, history.paths.root.run(run.id))]
        self._keep = [run.id for run in runs if run.id not in self._ended]

    def find(self) -> list[Part]:
        kinds = self._ask("space").mapping("kinds")
        return [_part(kind, kinds.get(kind)) for kind in KINDS]

    def remove(self) -> tuple[list[Part], list[str]]:
        """What went, and what could not be removed."""
        reply = self._ask("free")
        gone = reply.mapping("removed")
        parts = [
            Part(kind, count := _number(gone.get(kind), "count"), size := _number(gone.get(kind), "bytes"), count, size)
            for kind in KINDS
        ]
        return parts, reply.texts("problems")

    def _ask(self, what: str) -> Reply:
        request = {"do": what, "keep": self._keep, "runs": self._ended, "young": YOUNG}
        who = self._host.identity
        return Reply(who, self._host.ask(request, patience=600.0)).require_ok(f"{who} could not look after its space")


def is_home(run: Run, folder: RunFolder) -> bool:
    """Whether the run has ended and nothing of it is on the machine alone."""
    outputs = not run.outputs or os.path.exists(folder.home)
    return run.status.final and outputs and Mirror(folder).size() >= (run.log_size or 0)


def _part(kind: str, said: object) -> Part:
    names = ("count", "bytes", "free_count", "free_bytes")
    return Part(kind, *(_number(said, name) for name in names))


def _number(said: object, name: str) -> int:
    """Another machine's word for a number."""
    value = said.get(name, 0) if isinstance(said, dict) else 0
    return value if type(value) is int and 0 <= value < LARGEST else 0
