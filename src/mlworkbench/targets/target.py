"""A compute target at work: a host and its compute type; nobody subclasses it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LaunchError
from ..failure import Failure
from ..hosts.host import Host, News
from ..hosts.replies import Reply, printable
from ..model import RunSpec
from ..remote.shared.layout import Root
from .types import LOCAL, ComputeType

if TYPE_CHECKING:
    from ..hosts.parcel import Package

_PATIENCE = 30.0
_LATEST = 1e11  # seconds since 1970, in the year 5138
_MOST_SENT = 6  # times that a machine may ask for more before it is given the run or given up

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Stock:
    """What a start may ask for: code out of a store, packages of the environment."""

    store: Root
    packages: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Package]]  # of a lock, by the answer
    progress: Progress | None = None

    def supply(
        self, host: Host, call: Callable[[], Mapping[str, Any]], lock: Mapping[str, Any], snapshot: str = ""
    ) -> Mapping[str, Any]:
        """Repeat a call, and send what the machine lacks each time; its last answer."""
        for _ in range(_MOST_SENT):
            answer = call()
            lacks = Reply(host.identity, answer).text("lacks")
            if not lacks:
                return answer
            if lacks == "code":
                host.send_code(snapshot, self.store, self.progress)
            else:
                host.send_packages(self.packages(lock, answer), self.progress)
        return call()


@dataclass(frozen=True)
class Target:
    """Where runs are launched, read, cancelled."""

    host: Host
    type: ComputeType = LOCAL

    def launch(
        self,
        spec: RunSpec,
        secrets: Mapping[str, str],
        stock: Stock,
        everything: bool = False,
        children: Sequence[RunSpec] = (),
    ) -> None:
        """Put the run to work; what it needs comes out of ``stock``. Repeating it is harmless: a run is claimed once.

        ``everything``: all packages are sent, for the machine cannot fetch them. ``children``: the runs of a sweep.
        """
        message: dict[str, Any] = {"secrets": dict(secrets), "spec": spec.to_json(), "everything": everything}
        if children:
            from ..remote.shared.sweep_children import difference  # noqa: PLC0415 - other runs do without

            message["children"] = [difference(message["spec"], child.to_json()) for child in children]

        def start() -> Mapping[str, Any]:
            return self.host.call("start", spec.id, [os.urandom(8).hex()], message)

        patience = 0.0
        while True:
            answer = stock.supply(self.host, start, spec.lock or {}, spec.snapshot)
            reply = Reply(self.host.identity, answer)
            if not reply.ok:
                lacks = reply.text("lacks")
                arrived = f"the missing {printable(lacks)} were sent but did not arrive"
                failure = Failure("launch", arrived) if lacks and not reply.text("problem") else reply.failure
                words = f"run {spec.id} could not be started: {failure.message}"
                raise LaunchError(words, failure.hint, more=failure.explain or "could-not-start", code=failure.code)
            if answer.get("claimed") or answer.get("owner"):
                return
            # Another process holds the run's lock without having claimed it: it is about to, or it dies.
            patience = patience or time.monotonic() + _PATIENCE
            if time.monotonic() > patience:
                raise LaunchError(f"run {spec.id} could not be started: another process holds its lock")
            time.sleep(0.02)

    def adopt(self, run_id: str, root: str | None) -> tuple[str, float | None]:
        """Let a new supervisor look after a run whose old one is gone; how things stand, and its last sign of life.

        ``root``: ID of the root folder that took the run on. Only there a missing run is a lost one.
        """
        reply = Reply(self.host.identity, self.host.call("adopt", run_id, [], {"root": root}))
        seen = reply.number("heartbeat")
        return reply.text("state"), seen if seen is None or 0 <= seen < _LATEST else None

    def cancel(self, run_id: str, by: str, grace: float | None, message: Mapping[str, Any] | None = None) -> str:
        """Ask for the end of a run; it need not be supervised at the moment. ``message`` may bring its spec."""
        words = [by] if grace is None else [by, str(grace)]
        reply = Reply(self.host.identity, self.host.call("cancel", run_id, words, message or {}))
        return reply.require_ok(f"run {run_id} could not be canceled").text("state")

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        """New bytes since the offsets; where asking takes time, the answer may come up to ``wait`` seconds later."""
        return self.host.news(run_id, offsets, limit, wait)
