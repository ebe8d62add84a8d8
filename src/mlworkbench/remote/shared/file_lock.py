"""Locks on open files.

The kernel releases a lock when the file is closed or its process ends for any reason.
"""

from __future__ import annotations

import os

try:
    import fcntl
except ImportError:  # Windows: these locks have no effect
    fcntl = None  # type: ignore[assignment]

AVAILABLE = fcntl is not None


def wait_for_lock(descriptor: int, shared: bool = False) -> None:
    """Lock a file; wait while another process holds the lock."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(descriptor: int, shared: bool = False) -> bool:
    """Lock a file and return True, or return False if another process holds the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def is_current(descriptor: int, path: str) -> bool:
    """Return whether ``path`` still refers to the locked file. If not, other processes lock another file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False
