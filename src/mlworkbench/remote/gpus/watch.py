"""A run's GPUs as its supervisor sees them: obtain before the start, tick while it goes on, end. Light on purpose.

All that loads much is in other processes (``apart.py``, ``observer.py``). A run that asks for no GPU, on a machine that
has none, costs nothing.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from .. import machine
from ..folder import Root, RunFolder
from ..journal import Journal, log
from ..untrusted import parse_json
from .presence import may_have_gpu

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .lease import Granted, Leases

    Facts = Dict[str, Any]

CANCELLED = "canceled before it started"
# Seconds between two tries in the queue, for a run that has waited less than so many: who waits for days is cheap.
_PACES = ((5.0, 0.1), (20.0, 0.4))
_SLOWEST = 1.2
_LOOK = 0.4  # how long a cancel may go unnoticed
_AGAIN = 5.0  # seconds between attempts to hold what the launcher of a dead supervisor still holds
_PATIENCE = 10.0  # seconds for the verdict
_HIDES = ("", "-1")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def join(root: Root, run: RunFolder, spec: Facts) -> None:
    """Take a place in the queue, before whoever submits is answered: the next submit comes later."""
    if spec.get("gpus") in (None, "none"):
        return
    from .tickets import Tickets  # noqa: PLC0415 - runs without a request need none

    try:
        Tickets(root).join(spec["id"])
    except OSError as error:
        log("cannot join the GPU queue: %s" % error)  # obtain tries again, and tells


class GpuWatch:
    """The GPUs of one run."""

    def __init__(self, root: Root, run: RunFolder, spec: Facts, journal: Journal) -> None:
        self._root = root
        self._run = run
        self._spec = spec
        self._journal = journal
        self._asked: Optional[str] = spec.get("gpus")
        self._leases: Optional[Leases] = None
        self._observer: Optional[_Line] = None
        self._tried = False
        self._uuids: Optional[List[str]] = None
        self._next_hold = 0.0

    # -- before the start ------------------------------------------------------------------------------------

    def obtain(self, beat: Callable[[], None]) -> Optional[str]:
        """Wait for what was asked for. None: the run may start; else why it never will."""
        if self._asked is None:
            return None
        from .request import NONE, parse  # noqa: PLC0415 - runs without a request need none of it

        try:
            request = parse(self._asked)
            if request.kind == NONE:
                self._hide()
                return None
            if sys.platform != "linux":
                return "GPU leases are supported on Linux only"
            granted = self._queue(request, beat)
        except ValueError as error:
            return "invalid GPU request: %s" % error
        if isinstance(granted, str):
            return granted
        self._give(granted)
        return None

    def _queue(self, request: Any, beat: Callable[[], None]) -> "Granted | str":
        from .lease import Granted, Impossible, Leases, Waiting  # noqa: PLC0415 - as above

        self._leases = leases = Leases(self._root, self._run, self._spec["id"])
        leases.join()
        told, begun, due = None, time.monotonic(), 0.0
        while not (os.path.exists(self._run.cancel) or os.path.exists(self._run.gate)):
            if time.monotonic() < due:
                time.sleep(min(_LOOK, max(0.0, due - time.monotonic())))
                continue
            try:
                outcome = leases.take(request)
            except Impossible as reason:
                return str(reason)
            except OSError as error:  # a home folder that is away for a moment must not cost a place in the queue
                outcome = Waiting("the GPU queue cannot be read: %s" % error)
            if isinstance(outcome, Granted):
                return outcome
            if outcome.reason != told:
                told = outcome.reason
                self._journal.add("queued", {"reason": told})
            beat()
            waited = time.monotonic() - begun
            due = time.monotonic() + next((pace for until, pace in _PACES if waited < until), _SLOWEST)
        return CANCELLED

    def _give(self, granted: Granted) -> None:
        """What the launcher starts the script with. The spec on disk stays as it was decided."""
        from .observer import describe  # noqa: PLC0415 - as above

        self._uuids = uuids = [gpu["uuid"] for gpu in granted.gpus]
        environment = self._spec["environment"]
        replaced = None
        if environment.get(_VISIBLE) not in _HIDES:  # who hides them all means it
            replaced = self._own_choice()
            environment[_VISIBLE] = ",".join(uuids)
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if self._spec.get("container"):
            self._spec["container"]["gpus"] = uuids
        told = describe(granted.gpus, {"driver": granted.driver, "cuda": granted.cuda})
        self._journal.add("gpus", dict(told, held=True, asked=self._asked, replaced=replaced))

    def _hide(self) -> None:
        replaced = self._own_choice()
        self._spec["environment"][_VISIBLE] = ""
        if self._spec.get("container"):
            self._spec["container"]["gpus"] = None
        if replaced not in (None, *_HIDES):
            self._journal.add("gpus", {"gpus": [], "held": False, "asked": self._asked, "replaced": replaced})

    def _own_choice(self) -> Optional[str]:
        """The GPUs that the user's own variable names."""
        own: Optional[str] = self._spec["environment"].get(_VISIBLE)
        if own is None and _VISIBLE in self._spec.get("inherit", ()):
            own = os.environ.get(_VISIBLE)
        return own

    def descriptors(self) -> List[int]:
        """For the launcher to keep open: should the supervisor be killed, the GPUs stay the run's."""
        return self._leases.held.descriptors() if self._leases else []

    # -- while it goes on ------------------------------------------------------------------------------------

    def tick(self, facts: Optional[Facts]) -> None:
        """Called often. Whatever is wrong with the GPUs, the run must be watched."""
        try:
            self._look(facts)
        except (OSError, ValueError) as error:
            log("GPU monitoring is interrupted: %s" % error)

    def _look(self, facts: Optional[Facts]) -> None:
        if self._observer is not None:
            for message in self._observer.news():
                self._take_in(message)
        elif facts is not None and not self._tried:
            self._begin(facts)
        if self._leases is not None and self._next_hold and time.monotonic() >= self._next_hold:
            self._next_hold = time.monotonic() + _AGAIN if self._leases.again() else 0.0

    def _begin(self, facts: Facts) -> None:
        self._tried = True
        if self._asked == "none" or not (self._asked or may_have_gpu()) or not machine.FORKS:
            return
        if self._uuids is None and os.path.exists(self._run.lease):
            self._recall()
        self._observer = _Line(self._run, self._spec, facts, self._uuids)

    def _recall(self) -> None:
        """Another supervisor got them: hold them in its place."""
        from ..journal import read_json  # noqa: PLC0415
        from .lease import Leases  # noqa: PLC0415 - as above

        noted = (read_json(self._run.lease) or {}).get("uuids")
        self._uuids = noted if isinstance(noted, list) else None
        self._leases = Leases(self._root, self._run, self._spec["id"])
        self._next_hold = time.monotonic() + _AGAIN if self._leases.again() else 0.0
        if self._spec.get("container") and self._uuids:
            self._spec["container"]["gpus"] = self._uuids

    def _take_in(self, message: Facts) -> None:
        if "gpus" in message and "gpus" not in self._journal.kinds:
            self._journal.add("gpus", message["gpus"])
        elif "warning" in message:
            self._journal.add("gpu_idle", message)

    # -- the end ---------------------------------------------------------------------------------------------

    def end(self, started: bool, failed: bool, cause: Optional[str]) -> Optional[Facts]:
        """The verdict, if there is anything to judge; the GPUs are given back."""
        try:
            if self._observer is not None:
                return self._observer.finish({"cause": cause, "failed": failed}) or _silent(self._asked)
            if self._asked in (None, "none") or (not started and "gpus" not in self._journal.kinds):
                return None
            from .verdict import judge  # noqa: PLC0415 - as above

            evidence = {"problem": cause, "container": bool(self._spec.get("container"))}
            facts = {"started": started, "problem": "GPU monitoring did not continue to the end of the run"}
            return judge(None, self._asked, facts, evidence)
        finally:
            self._release()

    def _release(self) -> None:
        if self._leases is None and (self._asked in (None, "none") and not os.path.exists(self._run.lease)):
            return
        from .lease import Leases  # noqa: PLC0415 - as above

        (self._leases or Leases(self._root, self._run, self._spec["id"])).release()
        self._next_hold = 0.0


def _silent(asked: Optional[str]) -> Facts:
    """The process that measured is gone, or the driver holds it."""
    reason = "the GPU monitor did not respond"
    line = "GPU used: unknown – " + reason
    return {"used": "unknown", "asked": asked, "reason": reason, "line": line, "diagnosis": None, "evidence": {}}


class _Line:
    """The observer, at the other end of two pipes."""

    def __init__(self, run: RunFolder, spec: Facts, facts: Facts, uuids: Optional[List[str]]) -> None:
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


def _observe(run: RunFolder, spec: Facts, facts: Facts, uuids: Optional[List[str]], said: int, tell: int) -> None:
    from .observer import Observer  # noqa: PLC0415 - what the supervisor itself need not hold

    signal.set_wakeup_fd(-1)  # the pipe behind it is the supervisor's, and closed here
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    Observer(run, spec, facts, uuids).work(said, tell)
