"""A machine that this user never attached. Runs that came from it are at home; everything else is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import HostError
from ..remote.shared.layout import Root
from .host import News, Progress

if TYPE_CHECKING:
    from .facts import Facts
    from .parcel import Package


NOT_ATTACHED = "not-attached"  # code of every such refusal: see targets.remote.not_attached


class Stranger:
    """Refuses with the same words whatever is asked."""

    identity = "stranger"
    distant = True
    attachment = None

    def __init__(self, refusal: HostError) -> None:
        self.refusal = refusal

    @property
    def root(self) -> Root:
        self._refuse()

    def call(self, verb: str, run_id: str, words: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
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

    def ask(self, request: Mapping[str, Any], body: bytes = b"", patience: float = 60.0) -> dict[str, Any]:
        self._refuse()

    def inrun(self) -> str:
        self._refuse()

    def warm_up(self) -> None:
        """There is nobody to connect to."""

    def close(self) -> None:
        """Nothing is held open."""

    def _refuse(self) -> NoReturn:
        raise self.refusal
