"""Find and remove mlw files on another machine that are no longer needed.

The machine itself determines what its runs need. A run is removed only if this laptop submitted it, it has
ended, and its log and outputs are on this laptop. Other laptops may not have fetched their runs yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..history.run_query import Query
from ..history.store import History
from ..hosts.host import Host
from ..hosts.replies import MAX_NUMBER, Reply
from ..model import Run
from ..remote.shared.kept_reasons import (
    CHECKPOINTS,
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
from .fetch_state import unfetched_checkpoints, unfetched_reason

_MAX_NAMES = 100
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
RECENT_SECONDS = 3600.0  # seconds; more recent code is kept, because a pending submission may need it
KINDS = {
    "runs": "runs",
    "snapshots": "snapshots",
    "blobs": "code files",
    "spares": "warm working copies",
    "lib": "mlw programs",
    "envs": "environments",
    "caches": "package caches",
}


# Why items are kept, and how to remove them anyway. ``{t}``: target name; ``{clean}``: clean command.
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
    CHECKPOINTS: (
        "checkpoints not downloaded; to download them, run: mlw history download -r RUN --checkpoints; to remove them,"
        " run: {clean} --unfetched"
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
    """Items that are kept, with the reason as a key of ``WHY``."""

    why: str
    things: int
    size: int
    names: tuple[str, ...] = ()  # the first names, if the items are runs


@dataclass(frozen=True)
class Part:
    """Items of one kind on the machine, with their total and removable counts."""

    kind: str
    things: int
    size: int
    free_things: int
    free_size: int
    kept: tuple[Kept, ...] = ()


class RemoteCleaner:
    """Cleaner for files on a host.

    ``is_there`` returns whether a run in the history is on this machine. ``unfetched``: include ended
    runs of this laptop that are not fully fetched. ``recent``: include code that a pending submission
    may need.
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
        self._recent_seconds = 0.0 if recent else RECENT_SECONDS
        self._removable: list[str] = []
        self._kept: dict[str, str] = {}
        for run in history.search(Query(hidden=True, inside=False)):
            if is_there(run):
                folder = history.paths.root.run(run.id)
                why = unfetched_reason(run, folder) or unfetched_checkpoints(run, folder)
                if run.spec.origin is not None:  # only the laptop that submitted it may delete it
                    self._kept[run.id] = OTHER
                elif why is None or (unfetched and run.status.final):
                    self._removable.append(run.id)
                else:
                    self._kept[run.id] = why

    def find(self) -> list[Part]:
        kinds = self._request("space").mapping("kinds")
        return [_parse_part(kind, kinds.get(kind)) for kind in KINDS]

    def remove(self) -> tuple[list[Part], list[str]]:
        """Remove files. Return what was removed, why the rest was kept, and any problems."""
        reply = self._request("free")
        removed, kept = reply.mapping("removed"), reply.mapping("kept")
        parts = []
        for kind in KINDS:
            count, size = _parse_count(removed.get(kind), "count"), _parse_count(removed.get(kind), "bytes")
            parts.append(Part(kind, count, size, count, size, _parse_kept(kept.get(kind))))
        return parts, reply.texts("problems")

    def _request(self, verb: str) -> Reply:
        request = {
            "do": verb,
            "keep": list(self._kept),
            "reasons": self._kept,
            "runs": self._removable,
            "young": self._recent_seconds,
        }
        identity = self._host.identity
        return Reply(identity, self._host.ask(request, timeout=600.0)).require_ok(
            f"{identity} cannot report its disk usage"
        )


def _parse_part(kind: str, data: object) -> Part:
    things, size = _parse_count(data, "count"), _parse_count(data, "bytes")
    kept = _parse_kept(data.get("kept") if isinstance(data, dict) else None)
    return Part(kind, things, size, _parse_count(data, "free_count"), _parse_count(data, "free_bytes"), kept)


def _parse_kept(data: object) -> tuple[Kept, ...]:
    """Parse reasons from untrusted data and drop unknown ones."""
    reasons = data if isinstance(data, dict) else {}
    kept = (
        Kept(
            why,
            _parse_count(reasons.get(why), "count"),
            _parse_count(reasons.get(why), "bytes"),
            _parse_names(reasons.get(why)),
        )
        for why in WHY
    )
    return tuple(entry for entry in kept if entry.things)


def _parse_names(data: object) -> tuple[str, ...]:
    names = data.get("names") if isinstance(data, dict) else None
    limited = names[:_MAX_NAMES] if isinstance(names, list) else []
    return tuple(name for name in limited if isinstance(name, str) and _NAME.fullmatch(name))


def _parse_count(data: object, name: str) -> int:
    """Return a valid count from untrusted data, or 0."""
    value = data.get(name, 0) if isinstance(data, dict) else 0
    return value if type(value) is int and 0 <= value < MAX_NUMBER else 0
