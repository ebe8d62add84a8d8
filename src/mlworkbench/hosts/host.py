"""The protocol of a host: a machine that can be asked to run something and to hand over bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..remote.shared.layout import Root

if TYPE_CHECKING:
    from ..attachments import Attachment
    from .facts import Facts
    from .parcel import Package

Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True)
class News:
    """What is new in a run folder since the offsets that were given."""

    parts: Mapping[str, bytes] = field(default_factory=dict)  # file name in the run folder → bytes from its offset
    exists: bool = True  # the run folder is there
    claimed: bool = True  # a supervisor has taken the run on, be it alive or not
    supervised: bool = True  # one watches it now
    pending: bool = False  # the metrics files hold more, which did not fit into this answer
    unwritten: str = ""  # why its ending, which is known, cannot be written there


class Host(Protocol):
    """One machine. May raise HostError only; Unreachable if contact was lost."""

    identity: str  # "local", or user@host:port and the way; for messages
    distant: bool  # another machine: bytes have to travel

    @property
    def root(self) -> Root:
        """The folder that holds everything of this user there."""

    @property
    def attachment(self) -> Attachment | None:
        """What attach learnt of another machine."""

    def call(self, verb: str, run_id: str, words: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        """Start, adopt or cancel (``remote/verbs.py``). "lacks": "code" in the answer asks for ``send_code``."""

    def send_code(self, digest: str, store: Root, progress: Progress | None = None) -> None:
        """Bring a snapshot from the store here to the host; what it has does not travel again."""

    def send_packages(self, packages: Mapping[str, Package], progress: Progress | None = None) -> None:
        """Bring packages to the host: name below its folder of packages → file of this machine."""

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        """New bytes of the named files, and of metric files not named yet; at most ``limit`` of each.

        With ``wait`` the answer may come that many seconds later, when something is new. Not waited is for a run
        that nobody watches.
        """

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        """Bytes of one file of a run (``remote/serve.py`` lists which); empty if there are none."""

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        """Index in ``files`` (path below outputs, offset, declared size) and next bytes, at most to that size."""

    def facts(self) -> Facts:
        """What the machine is like, and whether runs can be kept there. May take seconds where an engine is slow."""

    def ask(self, request: Mapping[str, Any], body: bytes = b"", patience: float = 60.0) -> dict[str, Any]:
        """Any other request that the agent answers with one message (``remote/answers.py``)."""

    def inrun(self) -> str:
        """Folder on the host that holds the in-run library."""

    def warm_up(self) -> None:
        """Begin to connect; whoever asks something next waits for the rest."""

    def close(self) -> None:
        """Let go of connections; harmless when called twice."""
