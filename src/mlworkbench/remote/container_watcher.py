"""Watch a container until it exits: wait, determine and record the exit status, and remove it.

The launcher does this after the start. If the launcher is killed, the supervisor starts a new
process to do it.
"""

from __future__ import annotations

import os
import signal
import time

from .engine import NO_START_SIGNAL, Engine, ended_by_signal, remove_login
from .journal import log
from .launcher import prepare_launcher_process, record_exit
from .markers import confirm_started, is_alive, read_exit, read_started, read_starting
from .run_lock import acquire_lock
from .shared import machine
from .shared.atomic_files import write_unsynced
from .shared.failpoint import failpoint
from .shared.failure import parse_failure, text_of
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from .run_spec import Spec
    from .shared.failure import Reason

    Facts = Optional[Dict[str, Any]]

LAUNCHER_DIED = "the launcher died before the script started"
REMOVAL_TIMEOUT = 3600.0  # seconds to keep retrying the removal while the engine is down
ENGINE_CHECK_INTERVAL = 10.0  # seconds between checks that the same engine process is still running
UNSEEN_EXIT_CODE = 255  # exit code that Docker records if it did not see the container exit
RESTART_WINDOW = 60.0  # seconds; an engine gives a container ten seconds or more to exit

_UNKNOWN_EXIT: Dict[str, Any] = {"code": None, "signal": None, "problem": None}


def resume_watch(run: RunFolder, spec: Spec) -> None:
    """Watch the container in place of a killed launcher."""
    prepare_launcher_process()
    lock = acquire_lock(run.watcher_lock)
    if lock is None:
        return
    engine = Engine(spec["container"])
    remove_login(engine.name)
    facts = read_started(run) or read_starting(run)
    if read_exit(run) is not None:
        remove_with_retries(engine, run, remove_if_owned)
    elif facts is None:  # the start signal was not sent, and never will be
        close_start_fifo(run)
        record_not_started(run, LAUNCHER_DIED)
        remove_with_retries(engine, run, remove_if_owned)
    else:
        uncertain = os.path.exists(run.start_fifo)  # the launcher may have died before it sent the start signal
        if not uncertain or _keeps_running(engine):
            confirm_started(run)
        _watch_to_end(engine, run, facts, uncertain)


def _keeps_running(engine: Engine) -> bool:
    """Return whether the container keeps running, which means that it received the start signal.

    Without the start signal, the shell in the container exits immediately.
    """
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        if engine.inspect()["status"] in ("exited", "dead", "missing"):
            return False
        time.sleep(0.2)
    return True


def watch_to_end(engine: Engine, run: RunFolder, facts: Dict[str, Any]) -> None:
    """Watch the container in the launcher process."""
    _watch_to_end(engine, run, facts, False, failpoint)


def _watch_to_end(
    engine: Engine,
    run: RunFolder,
    facts: Dict[str, Any],
    uncertain: bool,
    hit_failpoint: Callable[[str], None] = lambda _: None,
) -> None:
    """Wait for the container to exit, record its exit status, and remove it.

    ``hit_failpoint`` marks points where a test may kill the process.
    """
    result = _ExitWaiter(engine, run, facts).wait()
    if result is None:
        return  # another watcher has recorded the exit
    if uncertain and result["code"] == NO_START_SIGNAL and not _has_log(run):
        result.update(code=None, problem=LAUNCHER_DIED)
    else:
        confirm_started(run)
    close_start_fifo(run)
    hit_failpoint("before-exit")
    record_exit(run, dict(result, ended=time.time(), elapsed=time.monotonic() - facts["clock"]))
    hit_failpoint("after-exit")
    remove_with_retries(engine, run)


def _has_log(run: RunFolder) -> bool:
    try:
        return os.stat(run.log).st_size > 0
    except OSError:
        return False


class _ExitWaiter:
    """Waiter for the exit of one container.

    It keeps waiting while the engine is down, because the container may still be running.
    """

    def __init__(self, engine: Engine, run: RunFolder, facts: Dict[str, Any]) -> None:
        self._engine = engine
        self._run = run
        self._engine_id = facts.get("engine")
        self._changed_at: Optional[float] = None

    def wait(self) -> Facts:
        """Return the exit status, or None if another watcher has already recorded it."""
        was_running, pause = False, 0.05
        while True:
            state = self._engine.inspect()
            status = state["status"]
            if status == "down":
                self._check_engine()
                if was_running and os.path.exists(self._run.cancel):
                    return dict(
                        _UNKNOWN_EXIT, unknown="the engine does not respond, and only the engine has the exit status"
                    )
                time.sleep(pause)
                pause = min(2.0, pause * 2)
            elif status == "missing":
                if read_exit(self._run) is not None:
                    return None
                stopped = "the container was removed (%s rm)" % self._engine.container["engine"]
                return dict(_UNKNOWN_EXIT, stopped=stopped)
            elif status in ("exited", "dead", "stopped"):
                return interpret_exit(state, self._engine, self._was_restarted())
            elif status == "created":
                return dict(_UNKNOWN_EXIT, problem="the engine created the container but never started it")
            else:
                was_running, pause = True, 0.05
                self._wait_for_process(state)

    def _wait_for_process(self, state: Dict[str, Any]) -> None:
        """Wait until the first process of the container exits, even while the engine is down."""
        pid = state["pid"]
        start = machine.start_time(pid) if pid else None
        if start is None or not _belongs_to(pid, state["id"]):  # the PID is from another namespace
            if self._engine.call("wait", self._engine.name, timeout=None)[0]:
                time.sleep(0.2)
            return
        self._write_process_marker(pid, start)
        wait, checked_at = machine.make_waiter(pid), time.monotonic()
        while is_alive((pid, start)):
            wait(ENGINE_CHECK_INTERVAL if hasattr(os, "pidfd_open") else 0.2)
            reap_children()
            if time.monotonic() >= checked_at + ENGINE_CHECK_INTERVAL:
                checked_at = time.monotonic()
                self._check_engine()

    def _write_process_marker(self, pid: int, start: int) -> None:
        """Write the process marker for companion processes that measure the run."""
        try:
            write_unsynced(self._run.container_process, {"pid": pid, "start": start})
        except OSError:
            pass  # disk full: the run is not measured

    def _check_engine(self) -> None:
        engine_id = self._engine.identity()
        if engine_id != self._engine_id:
            self._engine_id, self._changed_at = engine_id, time.monotonic()

    def _was_restarted(self) -> bool:
        """Return whether the engine stopped or started at about the time the container exited."""
        self._check_engine()
        return self._changed_at is not None and time.monotonic() < self._changed_at + RESTART_WINDOW


def reap_children() -> None:
    """Reap inherited child processes: podman monitors, and engine calls of a killed launcher."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _belongs_to(pid: int, container_id: str) -> bool:
    try:
        with open("/proc/%d/cgroup" % pid) as file:
            return container_id in file.read()
    except OSError:
        return False


def interpret_exit(state: Dict[str, Any], engine: Engine, restarted: bool) -> Dict[str, Any]:
    """Return the exit code or signal, and the reason if the container was stopped from outside."""
    code = state["code"]
    result: Dict[str, Any] = {"code": code, "signal": None, "problem": None, "oom": state["oom"]}
    result["limited"] = bool(engine.container.get("memory"))
    if code <= 128:
        return result
    by_signal = ended_by_signal(code, engine.init_log())
    if by_signal or (by_signal is None and code == 128 + signal.SIGKILL):
        result.update(code=None, signal=code - 128)
    if state["oom"] or by_signal is False:
        return result
    if restarted and code in (128 + signal.SIGKILL, 128 + signal.SIGTERM):
        result["stopped"] = "the engine was stopped or restarted and ended the container"
    elif by_signal is None and code == 128 + signal.SIGKILL and engine.container["engine"] == "docker":
        # If a process in the container had sent the signal, the first process would have logged it.
        result["stopped"] = "the container was killed, by 'docker kill' or by the engine"
    elif by_signal is None and code == UNSEEN_EXIT_CODE and engine.container["engine"] == "docker":
        result.update(code=None, stopped="the engine was restarted and found the container dead (Exited (255))")
    return result


def record_not_started(run: RunFolder, problem: Reason, cancelled: bool = False) -> None:
    """Record that the script was not started and never will be."""
    result: Dict[str, Any] = {
        "code": None,
        "signal": None,
        "problem": text_of(problem),
        "failure": parse_failure(problem),
    }
    result.update(ended=time.time(), elapsed=0.0)
    record_exit(run, dict(result, unstarted=True) if cancelled else result)


def remove_if_owned(engine: Engine, run: RunFolder) -> bool:
    """Remove the container if it belongs to this run.

    It may not exist, and its name may belong to another container.
    """
    state = engine.inspect()
    if state["status"] == "down":
        return False
    if state["status"] == "missing" or state["owner"] != run.path:
        remove_container_marker(run)
        return True
    return remove_container(engine, run)


def remove_container(engine: Engine, run: RunFolder) -> bool:
    """Remove the container. Return whether it no longer exists."""
    if not engine.remove():
        return False
    remove_container_marker(run)
    return True


def remove_container_marker(run: RunFolder) -> None:
    """Remove the marker of a container that does not exist."""
    try:
        os.unlink(run.container)
    except OSError:
        pass  # another process removed the marker or the run folder


def remove_with_retries(
    engine: Engine, run: RunFolder, attempt: Callable[[Engine, RunFolder], bool] = remove_container
) -> None:
    deadline, pause = time.monotonic() + REMOVAL_TIMEOUT, 0.1
    while not attempt(engine, run):
        if time.monotonic() > deadline:
            log("container %s could not be removed: the engine does not respond" % engine.name)
            return
        time.sleep(pause)
        pause = min(10.0, pause * 2)


def close_start_fifo(run: RunFolder) -> None:
    """Close the FIFO without sending a start signal, so that a waiting shell exits."""
    try:
        os.close(os.open(run.start_fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        pass  # no shell is waiting
    try:
        os.unlink(run.start_fifo)
    except OSError:
        pass
