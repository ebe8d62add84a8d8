"""Kinds of local files that ``mlw experiment clean`` finds, and the reasons for keeping some of them."""

from __future__ import annotations

from dataclasses import dataclass

UNUSED = " unused for 30 days"
WARM_COPIES, CODE, PROGRAMS, LEFTOVERS, INDEXES, CACHES, ENVIRONMENTS = (
    "warm working copies",
    "code that no run needs",
    "old supervisor programs",
    "leftovers of killed commands",
    "damaged indexes",
    "caches",
    "environments" + UNUSED,
)
KINDS = (WARM_COPIES, CODE, PROGRAMS, LEFTOVERS, INDEXES, CACHES, ENVIRONMENTS)
_RECENT = "to remove them, run: mlw experiment clean --yes --recent"
_WHY = {
    CODE: f"stored within the last hour, may be needed by a pending submission; {_RECENT}",
    PROGRAMS: f"created within the last hour, may be needed by a pending submission; {_RECENT}",
    LEFTOVERS: f"changed within the last 24 hours, may be in use; {_RECENT}",
    ENVIRONMENTS: "used within the last 30 days; to remove them, run: mlw environment remove --unused",
}


@dataclass(frozen=True)
class Kept:
    """Items of one kind that are kept."""

    kind: str
    things: int
    size: int

    @property
    def why(self) -> str:
        return _WHY[self.kind]


@dataclass(frozen=True)
class Removable:
    """An item that can be removed."""

    kind: str
    folder: str  # relative to the data folder
    name: str
    size: int  # bytes on disk
