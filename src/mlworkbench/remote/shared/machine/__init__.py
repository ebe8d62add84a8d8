"""What differs between operating systems, in one place: identity of the machine, processes, locks, detaching.

Linux is tested. macOS and Windows are written to their documentation and **untested**.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Iterable, Tuple

if sys.platform == "win32":
    from .windows import (
        DETACHED,
        FORKS,
        become_reaper,
        family,
        fork,
        identity,
        is_locked,
        kill,
        lock,
        oom_kills,
        share,
        start_time,
        sync_folder,
        waiter,
    )
elif sys.platform == "darwin":
    from .macos import family, identity, oom_kills, start_time
    from .posix import DETACHED, FORKS, become_reaper, fork, is_locked, kill, lock, share, sync_folder, waiter
else:
    from .linux import become_reaper, family, identity, oom_kills, start_time, waiter
    from .posix import DETACHED, FORKS, fork, is_locked, kill, lock, share, sync_folder

__all__ = [
    "DETACHED",
    "FORKS",
    "become_reaper",
    "family",
    "fork",
    "identity",
    "is_locked",
    "kill",
    "lock",
    "oom_kills",
    "share",
    "signal_all",
    "start_time",
    "sync_folder",
    "waiter",
]


def signal_all(processes: Iterable[Tuple[int, int]], number: int) -> None:
    """Signal each process that still is the one which was found: pid and start time."""
    for pid, start in processes:
        if start_time(pid) == start:
            kill(pid, number)
