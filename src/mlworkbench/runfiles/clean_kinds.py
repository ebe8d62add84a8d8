"""What ``mlw experiment clean`` finds on this machine: the kinds, one thing that can go, and why others stay."""

from __future__ import annotations

from dataclasses import dataclass

UNUSED = " unused for 30 days"
SPARES, CODE, PROGRAMS, LEFTOVERS, INDEXES, CACHES, ENVIRONMENTS = (
    "warm working copies",
    "code that no run needs",
    "old supervisor programs",
    "leftovers of killed commands",
    "damaged indexes",
    "caches",
    "environments" + UNUSED,
)
KINDS = (SPARES, CODE, PROGRAMS, LEFTOVERS, INDEXES, CACHES, ENVIRONMENTS)
_RECENT = "to remove them, run: mlw experiment clean --yes --recent"
_WHY = {
    CODE: f"stored within the last hour, may be needed by a pending submission; {_RECENT}",
    PROGRAMS: f"created within the last hour, may be needed by a pending submission; {_RECENT}",
    LEFTOVERS: f"changed within the last 24 hours, may be in use; {_RECENT}",
    ENVIRONMENTS: "used within the last 30 days; to remove them, run: mlw environment remove --unused",
}


@dataclass(frozen=True)
class Kept:
    """Things of one kind that stay."""

    kind: str
    things: int
    size: int

    @property
    def why(self) -> str:
        return _WHY[self.kind]


@dataclass(frozen=True)
class Find:
    """One thing that can go."""

    kind: str
    folder: str  # below our folder
    name: str
    size: int  # on the disk
