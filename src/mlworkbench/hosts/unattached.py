"""Host for a machine that this user has not attached. Fetched runs are available; requests are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import HostError
from ..remote.shared.layout import Root
from .host import News, Progress

if TYPE_CHECKING:
    from .host_facts import Facts
    from .package_upload import Package


NOT_ATTACHED = "not-attached"  # error code for every request; see targets.open_remote.not_attached


class UnattachedHost:
    """A host that refuses every request with the same error."""

    identity = "unattached"
    is_remote = True
    attachment = None

    def __init__(self, refusal: HostError) -> None:
        self.refusal = refusal

    @property
    def root(self) -> Root:
        self._refuse()

    def call(self, verb: str, run_id: str, arguments: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        self._refuse()

    def send_code(self, digest: str, store: Root, progress: Progress | None = None) -> None:
        self._refuse()

    def send_packages(self, packages: Mapping[str, Package], progress: Progress | None = None) -> None:
        self._refuse()

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        self._refuse()

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        self._refuse()

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        self._refuse()

    def facts(self) -> Facts:
        self._refuse()

    def ask(self, request: Mapping[str, Any], body: bytes = b"", timeout: float = 60.0) -> dict[str, Any]:
        self._refuse()

    def inrun(self) -> str:
        self._refuse()

    def warm_up(self) -> None:
        """Do nothing: there is no machine to connect to."""

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _refuse(self) -> NoReturn:
        raise self.refusal
