"""Locks on open files. The kernel releases a lock when the file is closed or its process ends, however it ends."""

from __future__ import annotations

import os

try:
    import fcntl
except ImportError:  # Windows: these locks keep no process out
    fcntl = None  # type: ignore[assignment]

AVAILABLE = fcntl is not None


def wait_for_lock(descriptor: int, shared: bool = False) -> None:
    """Lock a file; wait while another process holds the lock."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(descriptor: int, shared: bool = False) -> bool:
    """Lock a file, unless another process holds the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def is_current(descriptor: int, path: str) -> bool:
    """Whether a locked file still has its name, so that other processes lock the same file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False
