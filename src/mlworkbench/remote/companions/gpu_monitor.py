"""GPU monitoring of a run, in a separate process that measures GPU use and returns a final verdict.

Expensive imports happen only in that process (``gpus/gpu_observer.py``). A run without a GPU
request on a machine without GPUs incurs no cost.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from ..gpus.presence import may_have_gpu
from ..journal import Journal, log
from ..run_spec import requested_gpus
from ..shared import machine, run_endings
from ..shared.atomic_files import read_json
from ..shared.layout import RunFolder
from ..shared.untrusted_json import parse_json
from .companion import Companion

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..run_spec import Spec
    from ..shared.failure import Failure

    Facts = Dict[str, Any]

_VERDICT_TIMEOUT = 10.0  # seconds


class GpuMonitor(Companion):
    """Monitor of the GPUs that a run holds or, without a lease, can see."""

    task = "monitoring GPUs"

    def __init__(self, run: RunFolder, spec: Spec, journal: Journal) -> None:
        self._run = run
        self._spec = spec
        self._journal = journal
        self._request = requested_gpus(spec)
        self._observer: Optional[_ObserverProcess] = None
        self._tried = False

    def tick(self, facts: Optional[Facts]) -> None:
        try:
            self._check_observer(facts)
        except (OSError, ValueError) as error:
            log("GPU monitoring is interrupted: %s" % error)

    def _check_observer(self, facts: Optional[Facts]) -> None:
        if self._observer is not None:
            for message in self._observer.read_messages():
                self._record_message(message)
        elif facts is not None and not self._tried:
            self._tried = True
            self._start_observer(facts)

    def _start_observer(self, facts: Facts) -> None:
        if self._request == "none" or not (self._request or may_have_gpu()) or not machine.CAN_FORK:
            return
        uuids = (read_json(self._run.lease) or {}).get("uuids") if self._request else None
        self._observer = _ObserverProcess(self._run, self._spec, facts, uuids if isinstance(uuids, list) else None)

    def _record_message(self, message: Facts) -> None:
        if "gpus" in message and "gpus" not in self._journal.kinds:
            self._journal.add("gpus", message["gpus"])
        elif "warning" in message:
            self._journal.add("gpu_idle", message)

    def evidence(
        self, verdict: Optional[Facts], started: bool, ending: str, failure: Optional[Failure]
    ) -> Optional[Facts]:
        """Return the verdict based on measurements on this machine."""
        code = failure["code"] if failure else None
        if self._observer is not None:
            exit_facts = {"code": code, "failed": ending != run_endings.SUCCEEDED}
            return self._observer.finish(exit_facts) or _unknown_verdict(self._request)
        if self._request in (None, "none") or (not started and "gpus" not in self._journal.kinds):
            return verdict
        from ..gpus.verdict import decide_verdict  # noqa: PLC0415 - rarely needed in the supervisor

        evidence = {"code": code, "container": bool(self._spec.get("container"))}
        facts = {"started": started, "problem": "GPU monitoring did not continue to the end of the run"}
        return decide_verdict(None, self._request, facts, evidence)


def _unknown_verdict(request: Optional[str]) -> Facts:
    """Return the verdict for an observer that has died or is blocked by the driver."""
    reason = "the GPU monitor did not respond"
    line = "GPU used: unknown – " + reason
    verdict: Facts = {"used": "unknown", "asked": request, "reason": reason, "summary": reason, "line": line}
    return dict(verdict, diagnosis=None, evidence={})


class _ObserverProcess:
    """The observer process, connected by two pipes."""

    def __init__(self, run: RunFolder, spec: Spec, facts: Facts, uuids: Optional[List[str]]) -> None:
        response_reader, response_writer = os.pipe()
        request_reader, self._writer = os.pipe()
        self._reader = response_reader
        self._rest = b""
        self._pid = machine.fork(
            lambda: _run_observer(run, spec, facts, uuids, request_reader, response_writer),
            keep=[request_reader, response_writer],
        )
        self._start = machine.start_time(self._pid)
        os.close(response_writer)
        os.close(request_reader)
        os.set_blocking(response_reader, False)

    def read_messages(self) -> List[Facts]:
        """Return the messages that have arrived since the last call."""
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return []
        except OSError:
            return []  # already closed
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [parse_json(line) for line in lines]

    def finish(self, exit_facts: Facts) -> Optional[Facts]:
        """Return the observer's verdict, or None if it does not respond."""
        deadline = time.monotonic() + _VERDICT_TIMEOUT
        try:
            os.write(self._writer, json.dumps(exit_facts).encode("ascii"))
        except OSError:
            return None  # the observer has died
        try:
            while time.monotonic() < deadline:
                if not select.select([self._reader], [], [], deadline - time.monotonic())[0]:
                    break
                data = os.read(self._reader, 65536)
                if not data:
                    return None
                *lines, self._rest = (self._rest + data).split(b"\n")
                verdicts = [message["verdict"] for message in map(parse_json, lines) if "verdict" in message]
                if verdicts:
                    return dict(verdicts[0])
            return None
        finally:
            os.close(self._writer)
            os.close(self._reader)
            if self._start is not None:
                machine.signal_all([(self._pid, self._start)], signal.SIGKILL)


def _run_observer(
    run: RunFolder, spec: Spec, facts: Facts, uuids: Optional[List[str]], request_reader: int, response_writer: int
) -> None:
    from ..gpus.gpu_observer import Observer  # noqa: PLC0415 - not needed in the supervisor

    signal.set_wakeup_fd(-1)  # the fork closed the supervisor's wakeup descriptor, and its number may be reused
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    Observer(run, spec, facts, uuids).observe(request_reader, response_writer)
