"""What a run does with its GPUs, as its supervisor sees it: a process that measures, and its verdict at the end.

Light on purpose: all that loads much is in that process (``gpus/observer.py``). A run that asks for no GPU, on a
machine that has none, costs nothing.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from ..gpus.presence import may_have_gpu
from ..journal import Journal, log
from ..shared import endings, machine
from ..shared.files import read_json
from ..shared.layout import RunFolder
from ..shared.untrusted import parse_json
from .companion import Companion

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..run_spec import Spec
    from ..shared.failure import Failure

    Facts = Dict[str, Any]

_PATIENCE = 10.0  # seconds for the verdict


class GpuMonitor(Companion):
    """The GPUs that one run holds, or else sees."""

    task = "monitoring GPUs"

    def __init__(self, run: RunFolder, spec: Spec, journal: Journal) -> None:
        self._run = run
        self._spec = spec
        self._journal = journal
        self._asked: Optional[str] = spec.get("gpus")
        self._observer: Optional[_Line] = None
        self._tried = False

    def tick(self, facts: Optional[Facts]) -> None:
        try:
            self._look(facts)
        except (OSError, ValueError) as error:
            log("GPU monitoring is interrupted: %s" % error)

    def _look(self, facts: Optional[Facts]) -> None:
        if self._observer is not None:
            for message in self._observer.news():
                self._take_in(message)
        elif facts is not None and not self._tried:
            self._tried = True
            self._begin(facts)

    def _begin(self, facts: Facts) -> None:
        if self._asked == "none" or not (self._asked or may_have_gpu()) or not machine.FORKS:
            return
        uuids = (read_json(self._run.lease) or {}).get("uuids") if self._asked else None
        self._observer = _Line(self._run, self._spec, facts, uuids if isinstance(uuids, list) else None)

    def _take_in(self, message: Facts) -> None:
        if "gpus" in message and "gpus" not in self._journal.kinds:
            self._journal.add("gpus", message["gpus"])
        elif "warning" in message:
            self._journal.add("gpu_idle", message)

    def evidence(
        self, verdict: Optional[Facts], started: bool, ending: str, failure: Optional[Failure]
    ) -> Optional[Facts]:
        """What was measured on this machine."""
        code = failure["code"] if failure else None
        if self._observer is not None:
            ended = {"code": code, "failed": ending != endings.SUCCEEDED}
            return self._observer.finish(ended) or _silent(self._asked)
        if self._asked in (None, "none") or (not started and "gpus" not in self._journal.kinds):
            return verdict
        from ..gpus.verdict import judge  # noqa: PLC0415 - as above

        evidence = {"code": code, "container": bool(self._spec.get("container"))}
        facts = {"started": started, "problem": "GPU monitoring did not continue to the end of the run"}
        return judge(None, self._asked, facts, evidence)


def _silent(asked: Optional[str]) -> Facts:
    """The process that measured is gone, or the driver holds it."""
    reason = "the GPU monitor did not respond"
    line = "GPU used: unknown – " + reason
    known: Facts = {"used": "unknown", "asked": asked, "reason": reason, "summary": reason, "line": line}
    return dict(known, diagnosis=None, evidence={})


class _Line:
    """The observer, at the other end of two pipes."""

    def __init__(self, run: RunFolder, spec: Spec, facts: Facts, uuids: Optional[List[str]]) -> None:
        hear, tell = os.pipe()
        said, self._say = os.pipe()
        self._hear = hear
        self._rest = b""
        self._pid = machine.fork(lambda: _observe(run, spec, facts, uuids, said, tell), keep=[said, tell])
        self._start = machine.start_time(self._pid)
        os.close(tell)
        os.close(said)
        os.set_blocking(hear, False)

    def news(self) -> List[Facts]:
        """What it has told since the last time."""
        try:
            data = os.read(self._hear, 65536)
        except BlockingIOError:
            return []
        except OSError:
            return []  # given up before
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [parse_json(line) for line in lines]

    def finish(self, ended: Facts) -> Optional[Facts]:
        """Its verdict; None if there is none to be had."""
        deadline = time.monotonic() + _PATIENCE
        try:
            os.write(self._say, json.dumps(ended).encode("ascii"))
        except OSError:
            return None  # it has died
        try:
            while time.monotonic() < deadline:
                if not select.select([self._hear], [], [], deadline - time.monotonic())[0]:
                    break
                data = os.read(self._hear, 65536)
                if not data:
                    return None
                *lines, self._rest = (self._rest + data).split(b"\n")
                found = [message["verdict"] for message in map(parse_json, lines) if "verdict" in message]
                if found:
                    return dict(found[0])
            return None
        finally:
            os.close(self._say)
            os.close(self._hear)
            if self._start is not None:
                machine.signal_all([(self._pid, self._start)], signal.SIGKILL)


def _observe(run: RunFolder, spec: Spec, facts: Facts, uuids: Optional[List[str]], said: int, tell: int) -> None:
    from ..gpus.observer import Observer  # noqa: PLC0415 - what the supervisor itself need not hold

    signal.set_wakeup_fd(-1)  # the pipe behind it is the supervisor's, and closed here
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    Observer(run, spec, facts, uuids).work(said, tell)
