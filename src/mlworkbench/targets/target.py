"""A compute target at work: built from a host, a starter and a wrapper; nobody subclasses it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import LaunchError
from ..hosts.host import Host, News
from ..model import RunSpec
from ..remote.folder import Root

_PATIENCE = 30.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Target:
    """Where runs are launched, read, cancelled."""

    host: Host
    contained: bool = False  # the wrapper: a container around the command

    def launch(self, spec: RunSpec, secrets: Mapping[str, str], store: Root, progress: Progress | None = None) -> None:
        """Put the run to work; its code comes from ``store``. Repeating it is harmless: a run is claimed once."""
        patience = time.monotonic() + _PATIENCE
        message = {"secrets": dict(secrets), "spec": spec.to_json()}
        while True:
            answer = self.host.call("start", spec.id, [os.urandom(8).hex()], message)
            if answer.get("lacks") == "code":
                self.host.send_code(spec.snapshot, store, progress)
                patience = time.monotonic() + _PATIENCE
                continue
            if not answer.get("ok"):
                raise LaunchError(f"run {spec.id} could not be started: {answer.get('problem')}")
            if answer.get("claimed") or answer.get("owner"):
                return
            # Another process holds the run's lock without having claimed it: it is about to, or it dies.
            if time.monotonic() > patience:
                raise LaunchError(f"run {spec.id} could not be started: another process holds its lock")
            time.sleep(0.02)

    def adopt(self, run_id: str) -> tuple[str, float | None]:
        """Let a new supervisor look after a run whose old one is gone; how things stand, and its last sign of life."""
        answer = self.host.call("adopt", run_id, [], {})
        return str(answer.get("state")), answer.get("heartbeat")

    def cancel(self, run_id: str, by: str, grace: float | None) -> str:
        """Ask for the end of a run; it need not be supervised at the moment."""
        words = [by] if grace is None else [by, str(grace)]
        return str(self.host.call("cancel", run_id, words, {}).get("state"))

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        """New bytes since the offsets; where asking takes time, the answer may come up to ``wait`` seconds later."""
        return self.host.news(run_id, offsets, limit, wait)
