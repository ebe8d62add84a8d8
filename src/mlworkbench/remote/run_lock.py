"""The locks of a run: ``lock`` of its supervisor, ``watch`` of its launcher. Each names the process that holds it."""

from __future__ import annotations

import os

from .shared import machine
from .shared.tree import READ

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple


_held: Dict[str, int] = {}  # path → descriptor, of this process


def hold(path: str) -> Optional[int]:
    """Take the lock until the descriptor is closed or this process ends; None if another process has it."""
    descriptor = machine.lock(path)
    if descriptor is not None and machine.FORKS:
        _held[path] = descriptor
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
        with open(os.open(path, READ | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # it may be a FIFO
            pid, start = (file.read(64) or b"").split()
        return (int(pid), int(start)) if machine.start_time(int(pid)) == int(start) else None
    except (OSError, ValueError):
        return None


def is_replaced(path: str) -> bool:
    """Whether another process has the lock that this one took.

    That of a disk which was unmounted and mounted again is a lock on nothing: it is taken once more.
    """
    descriptor = _held.get(path)
    if descriptor is None:
        return False
    try:
        lost = not os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False  # there is no lock to be had
    return lost and hold(path) is None
