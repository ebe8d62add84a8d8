"""An opened compute target: a host and its compute type. Not meant for subclassing."""

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
    from ..hosts.package_upload import Package

_TIMEOUT = 30.0
_MAX_TIMESTAMP = 1e11  # Unix time in the year 5138; later heartbeats are invalid
_MAX_UPLOADS = 6  # maximum number of times a machine may request data per start

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class UploadSource:
    """Data that a machine may request to start a run: code from a store, and environment packages."""

    store: Root
    packages: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Package]]  # packages of a lock
    progress: Progress | None = None

    def call_with_uploads(
        self, host: Host, call: Callable[[], Mapping[str, Any]], lock: Mapping[str, Any], snapshot: str = ""
    ) -> Mapping[str, Any]:
        """Repeat a request, each time after sending the missing data, and return the last response."""
        for _ in range(_MAX_UPLOADS):
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
    """A target on which runs are started, read, and canceled."""

    host: Host
    type: ComputeType = LOCAL

    def launch(
        self,
        spec: RunSpec,
        secrets: Mapping[str, str],
        uploads: UploadSource,
        everything: bool = False,
        children: Sequence[RunSpec] = (),
    ) -> None:
        """Start the run with data from ``uploads``. A run is claimed only once, so repeating is harmless.

        ``everything``: send all packages, because the machine cannot download them. ``children``: the runs
        of a sweep.
        """
        message: dict[str, Any] = {"secrets": dict(secrets), "spec": spec.to_json(), "everything": everything}
        if children:
            from ..remote.shared.sweep_children import spec_difference  # noqa: PLC0415 - other runs do without

            message["children"] = [spec_difference(message["spec"], child.to_json()) for child in children]

        def start() -> Mapping[str, Any]:
            return self.host.call("start", spec.id, [os.urandom(8).hex()], message)

        patience = 0.0
        while True:
            answer = uploads.call_with_uploads(self.host, start, spec.lock or {}, spec.snapshot)
            reply = Reply(self.host.identity, answer)
            if not reply.ok:
                lacks = reply.text("lacks")
                arrived = f"the missing {printable(lacks)} were sent but did not arrive"
                failure = Failure("launch", arrived) if lacks and not reply.text("problem") else reply.failure
                words = f"run {spec.id} could not be started: {failure.message}"
                raise LaunchError(words, failure.hint, more=failure.explain or "could-not-start", code=failure.code)
            if answer.get("claimed") or answer.get("owner"):
                return
            # Another process has locked the run without claiming it. It will claim the run soon, or exit.
            patience = patience or time.monotonic() + _TIMEOUT
            if time.monotonic() > patience:
                raise LaunchError(f"run {spec.id} could not be started: another process holds its lock")
            time.sleep(0.02)

    def adopt(self, run_id: str, root: str | None) -> tuple[str, float | None]:
        """Start a new supervisor for a run that has none. Return the state and the last heartbeat.

        ``root``: ID of the root folder that accepted the run. A missing run counts as lost only there.
        """
        reply = Reply(self.host.identity, self.host.call("adopt", run_id, [], {"root": root}))
        heartbeat = reply.number("heartbeat")
        return reply.text("state"), heartbeat if heartbeat is None or 0 <= heartbeat < _MAX_TIMESTAMP else None

    def cancel(self, run_id: str, by: str, grace: float | None, message: Mapping[str, Any] | None = None) -> str:
        """Request the end of a run and return its state. The run may have no supervisor.

        ``message`` may contain the spec of the run.
        """
        arguments = [by] if grace is None else [by, str(grace)]
        reply = Reply(self.host.identity, self.host.call("cancel", run_id, arguments, message or {}))
        return reply.require_ok(f"run {run_id} could not be canceled").text("state")

    def statuses(self, run_ids: Sequence[str]) -> dict[str, Any]:
        """Return what the scheduler reports about each run. One request serves all of them."""
        reply = Reply(self.host.identity, self.host.ask({"do": "status", "runs": [*run_ids]}))
        runs = reply.require_ok(f"{self.host.identity} cannot report the state of runs").mapping("runs")
        return {run_id: runs.get(run_id) for run_id in run_ids}

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        """Return new bytes after ``offsets``. If there are none, wait up to ``wait`` seconds for them."""
        return self.host.news(run_id, offsets, limit, wait)
