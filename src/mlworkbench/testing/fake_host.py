"""Fake host for a folder: it records requests without starting runs, and can simulate lost contact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HostError
from ..hosts.host import News, Progress
from ..hosts.host_facts import Facts
from ..hosts.local_host import LocalHost
from ..remote.shared.layout import Root

if TYPE_CHECKING:
    from ..hosts.package_upload import Package


@dataclass(frozen=True)
class Call:
    """A request to start, adopt, or cancel a run."""

    verb: str
    run_id: str
    words: tuple[str, ...]
    message: Mapping[str, Any]


class FakeHost:
    """Fake implementation of ``Host``.

    Files are read from the folder. Requests to start, adopt, and cancel runs are only recorded in ``calls``.
    ``answers`` maps a verb to the responses for the next calls; the last one is repeated. While
    ``error`` is set, every method except ``close`` raises it.
    """

    identity = "fake"
    is_remote = False
    attachment = None

    def __init__(self, folder: Path, facts: Facts | None = None) -> None:
        self.root = Root(str(folder))
        self.calls: list[Call] = []
        self.sent: list[str] = []  # snapshot digests and package names
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
        return self._files.news(run_id, offsets, limit)  # no need to wait, because no process writes files

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        self._check()
        return self._files.read_file(run_id, name, offset, limit)

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        self._check()
        return self._files.outputs(run_id, files)

    def facts(self) -> Facts:
        self._check()
        return self._facts

    def ask(self, request: Mapping[str, Any], body: bytes = b"", timeout: float = 60.0) -> dict[str, Any]:
        self._check()
        return self._files.ask(request, body, timeout)

    def inrun(self) -> str:
        self._check()
        return self._files.inrun()

    def warm_up(self) -> None:
        self._check()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
