"""Locks of a run: the supervisor's ``lock`` and the launcher's ``watch``, each with its holder's PID."""

from __future__ import annotations

import os

from .shared import machine
from .shared.folder_tree import READ

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple


_held_locks: Dict[str, int] = {}  # path → descriptor in this process


def acquire_lock(path: str) -> Optional[int]:
    """Acquire the lock until the descriptor is closed or this process ends.

    Return None if another process holds the lock.
    """
    descriptor = machine.lock(path)
    if descriptor is not None and machine.CAN_FORK:
        _held_locks[path] = descriptor
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"%d %d\n" % (os.getpid(), machine.start_time(os.getpid()) or 0))
        except OSError:
            pass  # disk full: only the lock itself matters
    return descriptor


def lock_holder(path: str) -> Optional[Tuple[int, int]]:
    """Return the PID and start time of the process that holds the lock, or None if not known."""
    try:
        if not machine.is_locked(path):
            return None
        with open(os.open(path, READ | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # it may be a FIFO
            pid, start = (file.read(64) or b"").split()
        return (int(pid), int(start)) if machine.start_time(int(pid)) == int(start) else None
    except (OSError, ValueError):
        return None


def is_lock_lost(path: str) -> bool:
    """Return whether another process now holds the lock that this process acquired.

    After a remount, the old descriptor no longer locks the file, so the lock is acquired again.
    """
    descriptor = _held_locks.get(path)
    if descriptor is None:
        return False
    try:
        lost = not os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False  # the lock file is missing or not accessible
    return lost and acquire_lock(path) is None
