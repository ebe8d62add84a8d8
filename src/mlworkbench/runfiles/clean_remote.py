"""What can go from our folder on another machine: asked for first, with its bytes; removed only when asked for.

The machine itself knows what its own runs need. Of runs only those may go that have ended and whose log and outputs
are here: another laptop may not have fetched its own yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..history.query import Query
from ..history.store import History
from ..hosts.host import Host
from ..hosts.replies import LARGEST, Reply
from ..model import Run
from ..remote.shared.kept_reasons import (
    GOING,
    OTHER,
    RECENT,
    SHARED,
    UNCOLLECTED,
    UNFETCHED,
    UPLOADING,
    USED,
    YOUNG_CODE,
)
from .home_state import why_not_home

_MOST_NAMES = 100
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
YOUNG = 3600.0  # code that came in the last hour stays: a submit may be about to use it
KINDS = {
    "runs": "runs",
    "snapshots": "snapshots",
    "blobs": "code files",
    "spares": "warm working copies",
    "lib": "mlw programs",
    "envs": "environments",
    "caches": "package caches",
}


# Why something stays, and how it is removed all the same. ``{t}``: the target; ``{clean}``: the command for it.
WHY = {
    GOING: "still active; to stop a run, run: mlw cancel RUN",
    UNFETCHED: (
        "log or outputs not downloaded; to download them, run: mlw history download -r RUN; to remove them, run:"
        " {clean} --unfetched"
    ),
    UNCOLLECTED: (
        "some outputs exist only on the target; to list them, run: mlw history info -r RUN; to remove them, run:"
        " {clean} --unfetched"
    ),
    OTHER: "submitted by another laptop, which can remove them; to show them here, run: mlw history fetch -t {t}",
    UPLOADING: "an upload is in progress; try again later",
    YOUNG_CODE: (
        "uploaded within the last hour, may be needed by a pending submission; to remove them, run: {clean} --recent"
    ),
    USED: "in use by active runs or by mlw itself",
    RECENT: "used within the last 30 days; to remove them, run: mlw environment remove --unused -t {t}",
    SHARED: "downloads used to build environments; to remove them, run: mlw environment remove --caches -t {t}",
}


@dataclass(frozen=True)
class Kept:
    """Things that stay, and why: a key of ``WHY``."""

    why: str
    things: int
    size: int
    names: tuple[str, ...] = ()  # of the first runs


@dataclass(frozen=True)
class Part:
    """One kind of things there: how many, and how many of them can go."""

    kind: str
    things: int
    size: int
    free_things: int
    free_size: int
    kept: tuple[Kept, ...] = ()


class CleanerElsewhere:
    """Asks, and frees. ``is_there`` tells whether a run of the history belongs to this machine.

    ``unfetched``: also ended runs of this laptop whose results are not all here. ``recent``: also code that a submit
    may be about to use.
    """

    def __init__(
        self,
        history: History,
        host: Host,
        is_there: Callable[[Run], bool],
        *,
        unfetched: bool = False,
        recent: bool = False,
    ) -> None:
        self._host = host
        self._young = 0.0 if recent else YOUNG
        self._free: list[str] = []
        self._kept: dict[str, str] = {}
        for run in history.search(Query(hidden=True, inside=False)):
            if is_there(run):
                why = why_not_home(run, history.paths.root.run(run.id))
                if run.spec.origin is not None:  # another laptop's to delete
                    self._kept[run.id] = OTHER
                elif why is None or (unfetched and run.status.final):
                    self._free.append(run.id)
                else:
                    self._kept[run.id] = why

    def find(self) -> list[Part]:
        kinds = self._ask("space").mapping("kinds")
        return [_part(kind, kinds.get(kind)) for kind in KINDS]

    def remove(self) -> tuple[list[Part], list[str]]:
        """What went, why the rest stays, and what could not be removed."""
        reply = self._ask("free")
        gone, kept = reply.mapping("removed"), reply.mapping("kept")
        parts = []
        for kind in KINDS:
            count, size = _number(gone.get(kind), "count"), _number(gone.get(kind), "bytes")
            parts.append(Part(kind, count, size, count, size, _reasons(kept.get(kind))))
        return parts, reply.texts("problems")

    def _ask(self, what: str) -> Reply:
        request = {
            "do": what,
            "keep": list(self._kept),
            "reasons": self._kept,
            "runs": self._free,
            "young": self._young,
        }
        who = self._host.identity
        return Reply(who, self._host.ask(request, patience=600.0)).require_ok(f"{who} cannot report its disk usage")


def _part(kind: str, said: object) -> Part:
    things, size = _number(said, "count"), _number(said, "bytes")
    kept = _reasons(said.get("kept") if isinstance(said, dict) else None)
    return Part(kind, things, size, _number(said, "free_count"), _number(said, "free_bytes"), kept)


def _reasons(said: object) -> tuple[Kept, ...]:
    """Only for reasons that we know: the words come from another machine."""
    found = said if isinstance(said, dict) else {}
    kept = (
        Kept(why, _number(found.get(why), "count"), _number(found.get(why), "bytes"), _names(found.get(why)))
        for why in WHY
    )
    return tuple(one for one in kept if one.things)


def _names(said: object) -> tuple[str, ...]:
    names = said.get("names") if isinstance(said, dict) else None
    found = names[:_MOST_NAMES] if isinstance(names, list) else []
    return tuple(name for name in found if isinstance(name, str) and _NAME.fullmatch(name))


def _number(said: object, name: str) -> int:
    """Another machine's word for a number."""
    value = said.get(name, 0) if isinstance(said, dict) else 0
    return value if type(value) is int and 0 <= value < LARGEST else 0
