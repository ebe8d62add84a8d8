"""A host that starts nothing: it keeps files in a folder, records what it was asked, and can lose contact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HostError
from ..hosts.facts import Facts
from ..hosts.host import News, Progress
from ..hosts.local import LocalHost
from ..remote.shared.layout import Root

if TYPE_CHECKING:
    from ..hosts.parcel import Package


@dataclass(frozen=True)
class Call:
    """One request to start, adopt or cancel a run."""

    verb: str
    run_id: str
    words: tuple[str, ...]
    message: Mapping[str, Any]


class FakeHost:
    """Implements ``Host``. Reading files is real; starting, adopting and canceling runs is recorded in ``calls``.

    ``answers`` maps a verb to the answers of the next calls, of which the last one is repeated. ``error`` is raised
    by every method until it is None again.
    """

    identity = "fake"
    distant = False
    attachment = None

    def __init__(self, folder: Path, facts: Facts | None = None) -> None:
        self.root = Root(str(folder))
        self.calls: list[Call] = []
        self.sent: list[str] = []  # digests of snapshots, and names of packages
        self.error: HostError | None = None
        self.answers: dict[str, list[dict[str, Any]]] = {
            "start": [{"ok": True, "claimed": True}],
            "adopt": [{"ok": True, "state": "supervised"}],
            "cancel": [{"ok": True, "state": "asked"}],
        }
        self._facts = facts or Facts()
        self._files = LocalHost(self.root, {})

    def call(self, verb: str, run_id: str, words: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        self._check()
        self.calls.append(Call(verb, run_id, tuple(words), message))
        answers = self.answers[verb]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def send_code(self, digest: str, store: Root, progress: Progress | None = None) -> None:
        self._check()
        self.sent.append(digest)

    def send_packages(self, packages: Mapping[str, Package], progress: Progress | None = None) -> None:
        self._check()
        self.sent.extend(packages)

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        self._check()
        return self._files.news(run_id, offsets, limit)  # nothing changes while a test waits

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        self._check()
        return self._files.read_file(run_id, name, offset, limit)

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        self._check()
        return self._files.outputs(run_id, files)

    def facts(self) -> Facts:
        self._check()
        return self._facts

    def ask(self, request: Mapping[str, Any], body: bytes = b"", patience: float = 60.0) -> dict[str, Any]:
        self._check()
        return self._files.ask(request, body, patience)

    def inrun(self) -> str:
        self._check()
        return self._files.inrun()

    def warm_up(self) -> None:
        self._check()

    def close(self) -> None:
        """Nothing to close."""

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
