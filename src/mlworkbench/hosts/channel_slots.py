"""Limit the channels to a target to eight across this user's processes: sshd allows ten by default.

A slot is a locked file, which the kernel unlocks when its process ends. A process that waits for a
slot holds another lock. While that lock is held, processes that follow runs, which may take days,
briefly release their slots.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import HostError
from ..remote.shared.file_lock import try_lock, wait_for_lock

COUNT = 8
TIMEOUT = 120.0
_POLL_INTERVAL = 0.01


class ChannelSlots:
    """Slots of one target. ``path`` is the common prefix of their lock files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = -1

    def acquire(self, timeout: float = TIMEOUT) -> None:
        """Wait for a slot, unless this object already holds one."""
        if self.acquire_now():
            return
        waiting = _open(self._path.with_name(f"{self._path.name}.wait"))
        try:
            wait_for_lock(waiting, shared=True)
            end = time.monotonic() + timeout
            while not self._try_acquire():
                if time.monotonic() > end:
                    raise HostError(
                        f"all {COUNT} channels to the machine are in use by other mlw commands",
                        "stop some of them, or try again later",
                    )
                time.sleep(_POLL_INTERVAL)
        finally:
            os.close(waiting)

    def acquire_now(self) -> bool:
        """Acquire a slot if one is free. Return whether this object holds one."""
        return self._held >= 0 or self._try_acquire()

    def release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def is_contended(self) -> bool:
        """Return whether another process is waiting for a slot."""
        waiting = _open(self._path.with_name(f"{self._path.name}.wait"))
        try:
            return not try_lock(waiting)
        finally:
            os.close(waiting)

    def _try_acquire(self) -> bool:
        for number in range(COUNT):
            descriptor = _open(self._path.with_name(f"{self._path.name}.{number}"))
            if try_lock(descriptor):
                self._held = descriptor
                return True
            os.close(descriptor)
        return False


def acquire_lock(path: Path, timeout: float, timeout_error: Callable[[], HostError]) -> int:
    """Wait for a lock and return the file descriptor that holds it."""
    descriptor = _open(path)
    end = time.monotonic() + timeout
    while not try_lock(descriptor):
        if time.monotonic() > end:
            os.close(descriptor)
            raise timeout_error()
        time.sleep(_POLL_INTERVAL)
    return descriptor


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
