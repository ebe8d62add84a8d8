"""Replace a supervisor that does not respond to a cancel, for example because of SIGSTOP."""

from __future__ import annotations

import os
import signal
import time

from .heartbeat import INTERVAL
from .run_lock import lock_holder
from .shared import machine
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Callable

SILENCE_LIMIT = 4 * INTERVAL  # seconds without a heartbeat after which a supervisor counts as silent
REACTION_TIME = 2.0  # seconds a supervisor has to record a stop; most need less than half a second


def recover_supervisor(run: RunFolder) -> bool:
    """Resume a stopped launcher, and kill a stopped or stalled supervisor.

    Return whether the supervisor needs a successor. Its state is on disk, so a stopped supervisor is
    replaced immediately. If it were resumed, it could be stopped again after it had recorded the
    cancel, and there is no second check. For a healthy supervisor, return immediately.
    """
    supervisor, launcher = lock_holder(run.lock), lock_holder(run.watcher_lock)
    if launcher is not None and _is_stopped(launcher[0]):
        machine.signal_all([launcher], signal.SIGCONT)
    if supervisor is None:
        return False
    stopped = _is_stopped(supervisor[0])
    if not os.path.exists(run.started):
        if stopped:  # resumed, not killed: it may be building the environment
            machine.signal_all([supervisor], signal.SIGCONT)
        return False
    if not (stopped or _is_silent(run)) or (not stopped and _responds(run, supervisor)):
        return False
    machine.signal_all([supervisor], signal.SIGKILL)
    return _wait(lambda: lock_holder(run.lock) != supervisor)


def _responds(run: RunFolder, supervisor: "tuple[int, int]") -> bool:
    return _wait(
        lambda: os.path.exists(run.stopping) or os.path.exists(run.exit) or lock_holder(run.lock) != supervisor
    )


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + REACTION_TIME
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _is_stopped(pid: int) -> bool:
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def _is_silent(run: RunFolder) -> bool:
    try:
        return time.time() - os.stat(run.heartbeat).st_mtime > SILENCE_LIMIT
    except OSError:
        return False
