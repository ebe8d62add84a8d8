"""The content store's lock: while processes use the store, nothing can be removed from it.

The kernel releases the lock when its holder ends, even if it is killed. The lock is held while a
snapshot is stored or uploaded. After that, the snapshot's list of files is recent, and files in a recent
list are never removed. A start holds the lock until its supervisor holds the run's lock, because a purge
removes everything.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

from .file_lock import is_current, try_lock, wait_for_lock
from .folder_tree import CLOEXEC, NOFOLLOW, make_private
from .layout import Root

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterator

_TIMEOUT = 2.0
_POLL_INTERVAL = 0.01
_MAX_ATTEMPTS = 10


@contextmanager
def using_store(root: Root) -> Iterator[None]:
    """Prevent removals from the store. Wait for a removal that is in progress."""
    descriptor = _open(root)
    try:
        for _ in range(_MAX_ATTEMPTS):
            if descriptor < 0:
                break
            wait_for_lock(descriptor, shared=True)
            if is_current(descriptor, _path(root)):
                break
            os.close(descriptor)  # a purge removed the file while this process waited
            descriptor = _open(root)
        yield
    finally:
        _close(descriptor)


@contextmanager
def removing_from_store(root: Root) -> Iterator[bool]:
    """Yield whether no process uses the store. If so, no process can use it until the block ends.

    This does not wait for processes that use the store, because a snapshot may take a long time.
    """
    descriptor = _open(root)
    try:
        yield descriptor >= 0 and _try_exclusive(descriptor) and is_current(descriptor, _path(root))
    finally:
        _close(descriptor)


def _open(root: Root) -> int:
    """Return a descriptor, or -1 if the folder is not writable and nothing can be removed anyway."""
    try:
        make_private(root.path)
        return os.open(_path(root), os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC, 0o600)
    except OSError:
        return -1


def _path(root: Root) -> str:
    return os.path.join(root.path, "store.lock")


def _try_exclusive(descriptor: int) -> bool:
    end = time.monotonic() + _TIMEOUT
    while not try_lock(descriptor):
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_INTERVAL)
    return True


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
