"""A supervisor that does not react to a cancel: replaced, also if it was stopped (SIGSTOP)."""

from __future__ import annotations

import os
import signal
import time

from .heartbeat import INTERVAL
from .run_lock import holder
from .shared import machine
from .shared.layout import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Callable

SILENT = 4 * INTERVAL  # seconds without a heartbeat: stopped, frozen, or waiting for swap
REACTION = 2.0  # seconds within which a supervisor notes that it stops the run; most take less than half of one


def rouse(run: RunFolder) -> bool:
    """Continue a stopped launcher; end a supervisor that is stopped or does nothing. True: it needs a successor.

    All state of a supervisor is on disk, so a stopped one is replaced at once. If it were continued, it could be
    stopped again after it has recorded the cancel, and no second check follows. Returns at once for a healthy one.
    """
    supervisor, launcher = holder(run.lock), holder(run.watch)
    if launcher is not None and _is_stopped(launcher[0]):
        machine.signal_all([launcher], signal.SIGCONT)
    if supervisor is None:
        return False
    stopped = _is_stopped(supervisor[0])
    if not os.path.exists(run.started):
        if stopped:  # not ended: it may be building its environment
            machine.signal_all([supervisor], signal.SIGCONT)
        return False
    if not (stopped or _is_silent(run)) or (not stopped and _reacts(run, supervisor)):
        return False
    machine.signal_all([supervisor], signal.SIGKILL)
    return _wait(lambda: holder(run.lock) != supervisor)


def _reacts(run: RunFolder, supervisor: "tuple[int, int]") -> bool:
    return _wait(lambda: os.path.exists(run.stopping) or os.path.exists(run.exit) or holder(run.lock) != supervisor)


def _wait(condition: Callable[[], bool]) -> bool:
    patience = time.monotonic() + REACTION
    while not condition():
        if time.monotonic() > patience:
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
        return time.time() - os.stat(run.heartbeat).st_mtime > SILENT
    except OSError:
        return False
