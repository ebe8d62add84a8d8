"""The host protocol: a machine that runs commands and transfers files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..remote.shared.layout import Root

if TYPE_CHECKING:
    from ..attachments import Attachment
    from .host_facts import Facts
    from .package_upload import Package

Progress = Callable[[int, int], None]  # arguments: bytes done, bytes in total


NEWS_FLAGS = ("exists", "claimed", "supervised", "scheduled", "pending")


@dataclass(frozen=True)
class News:
    """New content of a run folder since the given offsets."""

    parts: Mapping[str, bytes] = field(default_factory=dict)  # file name in the run folder → bytes since its offset
    exists: bool = True  # the run folder exists
    claimed: bool = True  # a supervisor has claimed the run, whether it is still alive or not
    supervised: bool = True  # a supervisor is watching the run now
    scheduled: bool = False  # a scheduler starts the run, and only the scheduler can report whether it still executes
    pending: bool = False  # the metrics files contain more than fits in this answer
    unwritten_reason: str = ""  # why the host cannot save the run's known ending


class Host(Protocol):
    """A machine. Methods raise only HostError, or its subclass Unreachable if the connection is lost."""

    identity: str  # "local", or user@host:port with the jump host; for messages
    is_remote: bool  # True for a remote machine, to which data must be transferred

    @property
    def root(self) -> Root:
        """The folder on the host that contains all of this user's files."""

    @property
    def attachment(self) -> Attachment | None:
        """Information that attach recorded about a remote machine."""

    def call(self, verb: str, run_id: str, arguments: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        """Start, adopt, or cancel a run (see ``remote/run_control.py``).

        If the answer contains ``"lacks": "code"``, call ``send_code``.
        """

    def send_code(self, digest: str, store: Root, progress: Progress | None = None) -> None:
        """Upload a snapshot from the local store to the host, transferring only missing files."""

    def send_packages(self, packages: Mapping[str, Package], progress: Progress | None = None) -> None:
        """Upload packages to the host. ``packages`` maps names in its package folder to local files."""

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        """Return new bytes of the files in ``offsets`` and of other metrics files.

        At most ``limit`` bytes per file are returned. With ``wait``, the host may take that many seconds to
        answer if there is nothing new. It does not wait for a run without a supervisor.
        """

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        """Return bytes of one file of a run, or b"" if there are none.

        ``remote/run_reader.py`` lists the available files.
        """

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        """Yield pairs of an index in ``files`` and the next bytes of that file, up to its declared size.

        Each item of ``files`` is a path below outputs, an offset, and the declared size.
        """

    def facts(self) -> Facts:
        """Return facts about the machine and its storage.

        This may take several seconds if a container engine is slow.
        """

    def ask(self, request: Mapping[str, Any], body: bytes = b"", timeout: float = 60.0) -> dict[str, Any]:
        """Send any other request that the agent answers with one message (``remote/handlers.py``)."""

    def inrun(self) -> str:
        """Return the folder on the host that contains the in-run library."""

    def warm_up(self) -> None:
        """Start connecting in the background. The next request waits until the connection is ready."""

    def close(self) -> None:
        """Close all connections. Calling this twice is harmless."""
