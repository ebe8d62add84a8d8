"""The run as plain processes of this machine: put to work, found again, stopped. Beside it: ``container.py``."""

from __future__ import annotations

import os
import signal
import time

from .launcher import decode, put_to_work
from .notes import alive, promote, read_exit, read_gate, read_started, read_starting
from .shared import machine
from .shared.layout import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, Union

    from .run_spec import Spec

    Facts = Optional[Dict[str, Any]]


OUTLIVED = "the launcher and the supervisor were killed during the run, so the exit status could not be read"
UNWRITTEN = "the launcher and the supervisor ended before the exit status was written"


RUNNING = "running"


class Processes:
    """``Work`` of plain processes. A launcher, once gone, is replaced by our own wait."""

    def __init__(self, run: RunFolder, spec: Spec) -> None:
        self._run = run
        self._spec = spec
        self._reaped: Dict[int, int] = {}
        self._launcher: Tuple[Optional[int], Optional[int]] = (None, None)
        self._orphaned = False  # whether the child was seen alive without its launcher

    def prepare(self) -> None:
        """What must be there before the start, beside the code."""
        share = self._spec["environment"].get("AZUREML_NATIVE_SHARE_DIRECTORY")
        if share:
            os.makedirs(share, exist_ok=True)

    def start(self, secrets: Dict[str, str], umask: int, keep: List[int]) -> None:
        """Start the launcher, which passes the gate or does not, and holds ``keep`` open."""
        pid = put_to_work(self._run, self._spec, secrets, umask, keep)
        self._launcher = (pid, machine.start_time(pid))

    def coming(self) -> bool:
        """Whether a launcher of ours lives."""
        return alive(self._launcher)

    def step(self) -> Facts:
        """Something worth telling before the start; none here."""
        return None

    def reap(self) -> None:
        """Our children: the launcher, and what it left to us when it died."""
        while os.name != "nt":
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reaped[pid] = status

    def started(self) -> Facts:
        """What was noted of the start, also if the launcher died before it could."""
        return read_started(self._run) or self._started_by_a_dead_launcher()

    def _started_by_a_dead_launcher(self) -> Facts:
        """It gave the child the word and died before it could tell: the child has become the user's program."""
        facts = read_starting(self._run)
        if facts is None or alive((facts["launcher"], facts.get("launcher_start"))):
            return None
        child = (facts["pid"], facts["start"])
        return promote(self._run) if child in machine.family(self._run.path, [], []) else None

    def ended_unseen(self) -> Facts:
        """The ending of a child whose launcher is gone: from our own wait, or unknown."""
        run, gate = self._run, read_gate(self._run)
        launcher = (gate["pid"], gate["start"]) if gate else self._launcher
        if alive(launcher):
            return None
        facts = read_started(run) or read_starting(run)  # the launcher writes no more
        if facts and alive((facts["pid"], facts["start"])):
            self._orphaned = True
            return None
        if facts is None and machine.family(run.path, [], []):
            self._orphaned = True
            return None  # its note is gone, and the child is known by its mark
        facts = promote(run) or read_starting(run)  # a child that never became the user's program has removed it
        self.reap()  # it may have ended since the last time
        written = read_exit(run)  # it may have been written between our two looks
        if written:
            return written
        status = self._reaped.get(facts["pid"]) if facts else None
        code, number = decode(status) if status is not None else (None, None)
        ended: Dict[str, Any] = {"code": code, "signal": number, "problem": None}
        ended.update(ended=time.time(), elapsed=None)
        if facts is None and gate and gate["pid"] is not None and not os.path.exists(run.log):
            ended["problem"] = "the launcher died before the script started"
        elif status is None:
            ended["unknown"] = OUTLIVED if self._orphaned else UNWRITTEN
        return ended

    def after_restart(self, rebooted: bool, waiting: Callable[[], None]) -> Union[str, Facts]:
        """What is left of the run: nothing."""
        return None

    def living(self, facts: Facts) -> List[Tuple[int, int]]:
        """All living processes of the user's, the main one last."""
        if facts is None:
            return machine.family(self._run.path, [os.getpid()], [])
        main = (facts["pid"], facts["start"])
        # Once the main process is dead, its number may be another's session.
        sessions = [facts["pid"]] if alive(main) else []
        found = machine.family(self._run.path, [os.getpid(), facts["launcher"], facts["pid"]], sessions)
        return found + ([main] if alive(main) else [])

    def terminate(self, facts: Facts) -> None:
        """Ask all of them to end."""
        machine.signal_all(self.living(facts), signal.SIGTERM)

    def kill(self, facts: Facts) -> None:
        kill_all(lambda: self.living(facts))

    def leave(self) -> None:
        """The last thing before the ending is told."""


def kill_all(family: Callable[[], List[Tuple[int, int]]]) -> None:
    """First stop them all, so that none can fork away from us, then kill."""
    stopped: Dict[Tuple[int, int], bool] = {}
    for _ in range(20):
        new = [one for one in family() if one not in stopped]
        if not new:
            break
        machine.signal_all(new, getattr(signal, "SIGSTOP", signal.SIGTERM))
        stopped.update(dict.fromkeys(new, True))
    machine.signal_all(stopped, getattr(signal, "SIGKILL", signal.SIGTERM))
