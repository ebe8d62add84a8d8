"""The protocol of a host: a machine that can be asked to run something and to hand over bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..remote.folder import Root

if TYPE_CHECKING:
    from .facts import Facts


@dataclass(frozen=True)
class News:
    """What is new in a run folder since the offsets that were given."""

    parts: Mapping[str, bytes] = field(default_factory=dict)  # file name in the run folder → bytes from its offset
    exists: bool = True  # the run folder is there
    claimed: bool = True  # a supervisor has taken the run on, be it alive or not
    supervised: bool = True  # one watches it now


class Host(Protocol):
    """One machine. May raise HostError only."""

    root: Root

    def call(self, verb: str, run_id: str, words: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        """Ask our program on the host (``remote/__main__.py``); the message travels by stdin."""

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int) -> News:
        """New bytes of the named files, and of metric files not named yet; at most ``limit`` of each."""

    def inrun(self) -> str:
        """Folder on the host that holds the in-run library."""

    def facts(self) -> Facts:
        """What the machine is like, and whether runs can be kept there. May take seconds where an engine is slow."""

    def close(self) -> None:
        """Let go of connections; harmless when called twice."""
