"""``Work`` implementation for plain processes; ``container_work.py`` is the one for containers."""

from __future__ import annotations

import os
import signal
import time

from .launcher import decode_status, spawn_launcher
from .markers import confirm_started, is_alive, read_exit, read_start_decision, read_started, read_starting
from .shared import machine
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, Union

    from .run_spec import Spec

    Facts = Optional[Dict[str, Any]]


EXIT_UNREAD = "the launcher and the supervisor were killed during the run, so the exit status could not be read"
EXIT_UNWRITTEN = "the launcher and the supervisor ended before the exit status was written"


RUNNING = "running"


class ProcessWork:
    """``Work`` implementation for plain processes. If the launcher dies, the supervisor waits for the child."""

    def __init__(self, run: RunFolder, spec: Spec) -> None:
        self._run = run
        self._spec = spec
        self._reaped: Dict[int, int] = {}
        self._launcher: Tuple[Optional[int], Optional[int]] = (None, None)
        self._orphaned = False  # whether the child was alive after its launcher had died

    def prepare(self) -> None:
        """Create the shared folder, if the run uses one."""
        share = self._spec["environment"].get("AZUREML_NATIVE_SHARE_DIRECTORY")
        if share:
            os.makedirs(share, exist_ok=True)

    def start(self, secrets: Dict[str, str], umask: int, keep: List[int]) -> None:
        """Start the launcher, which makes the start decision and keeps the descriptors ``keep`` open."""
        pid = spawn_launcher(self._run, self._spec, secrets, umask, keep)
        self._launcher = (pid, machine.start_time(pid))

    def is_launching(self) -> bool:
        """Return whether a launcher that this supervisor started is alive."""
        return is_alive(self._launcher)

    def step(self) -> Facts:
        """Return None: plain processes have no data for ``step`` events."""
        return None

    def reap(self) -> None:
        """Reap child processes: the launcher, and the children that it left behind when it died."""
        while os.name != "nt":
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reaped[pid] = status

    def started(self) -> Facts:
        """Return the facts about the start, even if the launcher died before it confirmed the start."""
        return read_started(self._run) or self._confirm_orphaned_start()

    def _confirm_orphaned_start(self) -> Facts:
        """Confirm the start if the launcher died after the child had become the user's program."""
        facts = read_starting(self._run)
        if facts is None or is_alive((facts["launcher"], facts.get("launcher_start"))):
            return None
        child = (facts["pid"], facts["start"])
        return confirm_started(self._run) if child in machine.find_processes(self._run.path, [], []) else None

    def find_unrecorded_exit(self) -> Facts:
        """Return the exit status of a child whose launcher has died; unknown unless this process reaped the child."""
        run, decision = self._run, read_start_decision(self._run)
        launcher = (decision["pid"], decision["start"]) if decision else self._launcher
        if is_alive(launcher):
            return None
        facts = read_started(run) or read_starting(run)  # final, because the launcher is dead
        if facts and is_alive((facts["pid"], facts["start"])):
            self._orphaned = True
            return None
        if facts is None and machine.find_processes(run.path, [], []):
            self._orphaned = True
            return None  # the marker is missing, but the environment identifies the child
        # A child that never became the user's program has removed its marker.
        facts = confirm_started(run) or read_starting(run)
        self.reap()  # the child may have ended since the last call
        recorded = read_exit(run)  # the launcher may have written it just before it died
        if recorded:
            return recorded
        status = self._reaped.get(facts["pid"]) if facts else None
        code, signal_number = decode_status(status) if status is not None else (None, None)
        result: Dict[str, Any] = {"code": code, "signal": signal_number, "problem": None}
        result.update(ended=time.time(), elapsed=None)
        if facts is None and decision and decision["pid"] is not None and not os.path.exists(run.log):
            result["problem"] = "the launcher died before the script started"
        elif status is None:
            result["unknown"] = EXIT_UNREAD if self._orphaned else EXIT_UNWRITTEN
        return result

    def after_restart(self, rebooted: bool, waiting: Callable[[], None]) -> Union[str, Facts]:
        """Return None: no process survives a restart."""
        return None

    def living_processes(self, facts: Facts) -> List[Tuple[int, int]]:
        """Return all living processes of the run, with the main process last."""
        if facts is None:
            return machine.find_processes(self._run.path, [os.getpid()], [])
        main = (facts["pid"], facts["start"])
        # After the main process has ended, its PID may be the session ID of other processes.
        sessions = [facts["pid"]] if is_alive(main) else []
        processes = machine.find_processes(self._run.path, [os.getpid(), facts["launcher"], facts["pid"]], sessions)
        return processes + ([main] if is_alive(main) else [])

    def terminate(self, facts: Facts) -> None:
        """Send SIGTERM to all processes."""
        machine.signal_all(self.living_processes(facts), signal.SIGTERM)

    def kill(self, facts: Facts) -> None:
        kill_all(lambda: self.living_processes(facts))

    def abandon(self, facts: Facts) -> None:
        """Kill the descendants of the launcher. Those of a newer attempt have the same variable."""
        launcher = (facts["launcher"], facts.get("launcher_start")) if facts else self._launcher
        roots = [launcher[0]] if launcher[0] and is_alive(launcher) else []
        sessions = [facts["pid"]] if facts and is_alive((facts["pid"], facts["start"])) else []
        kill_all(lambda: machine.find_processes("", roots, sessions))

    def clean_up(self) -> None:
        """Do nothing: plain processes leave nothing to clean up."""


def kill_all(family: Callable[[], List[Tuple[int, int]]]) -> None:
    """Stop all processes first, so that none can fork, then kill them."""
    stopped: Dict[Tuple[int, int], bool] = {}
    for _ in range(20):
        new = [process for process in family() if process not in stopped]
        if not new:
            break
        machine.signal_all(new, getattr(signal, "SIGSTOP", signal.SIGTERM))
        stopped.update(dict.fromkeys(new, True))
    machine.signal_all(stopped, getattr(signal, "SIGKILL", signal.SIGTERM))
