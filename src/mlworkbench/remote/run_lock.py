"""The locks of a run: ``lock`` of its supervisor, ``watch`` of its launcher. Each names the process that holds it."""

from __future__ import annotations

import os

from . import machine

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Optional, Tuple


def hold(path: str) -> Optional[int]:
    """Take the lock until the descriptor is closed or this process ends; None if another process has it."""
    descriptor = machine.lock(path)
    if descriptor is not None and machine.FORKS:
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"%d %d\n" % (os.getpid(), machine.start_time(os.getpid()) or 0))
        except OSError:
            pass  # a full disk: the lock is what counts
    return descriptor


def holder(path: str) -> Optional[Tuple[int, int]]:
    """Pid and start time of the process that holds the lock; None if there is none, or it cannot be known."""
    try:
        if not machine.is_locked(path):
            return None
        with open(path, "rb") as file:
            pid, start = file.read(64).split()
        return (int(pid), int(start)) if machine.start_time(int(pid)) == int(start) else None
    except (OSError, ValueError):
        return None
