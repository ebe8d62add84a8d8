"""Differences between operating systems: machine identity, processes, locks, and detaching.

Linux is tested. The macOS and Windows implementations follow the documentation and are
**untested**.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterable, Tuple

if sys.platform == "win32":
    from .windows import (
        CAN_FORK,
        DETACHED,
        become_reaper,
        find_processes,
        fork,
        identity,
        is_locked,
        kill,
        lock,
        lock_shared,
        make_waiter,
        oom_kills,
        start_time,
        sync_folder,
    )
elif sys.platform == "darwin":
    from .macos import find_processes, identity, oom_kills, start_time
    from .posix import (
        CAN_FORK,
        DETACHED,
        become_reaper,
        fork,
        is_locked,
        kill,
        lock,
        lock_shared,
        make_waiter,
        sync_folder,
    )
else:
    from .linux import become_reaper, find_processes, identity, make_waiter, oom_kills, start_time
    from .posix import CAN_FORK, DETACHED, fork, is_locked, kill, lock, lock_shared, sync_folder

__all__ = [
    "DETACHED",
    "CAN_FORK",
    "become_reaper",
    "find_processes",
    "fork",
    "identity",
    "is_locked",
    "kill",
    "lock",
    "oom_kills",
    "lock_shared",
    "signal_all",
    "start_time",
    "sync_folder",
    "make_waiter",
]


def signal_all(processes: Iterable[Tuple[int, int]], number: int) -> None:
    """Send a signal to each process (PID and start time) that still exists with the same start time."""
    for pid, start in processes:
        if start_time(pid) == start:
            kill(pid, number)
