"""At most eight channels to a target at once, over all processes of this user: sshd allows ten by default.

A slot is a locked file: the kernel frees it on any death. Whoever waits holds another lock, which tells the
followers, who would keep theirs for days, to let go for a moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import HostError
from ..remote.shared.file_lock import try_lock, wait_for_lock

COUNT = 8
PATIENCE = 120.0
_LOOK = 0.01


class Slots:
    """The slots of one target. ``place`` is the beginning of the names of their files."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._held = -1

    def acquire(self, patience: float = PATIENCE) -> None:
        """Wait for a slot; harmless if one is held."""
        if self.acquire_now():
            return
        waiting = _open(self._place.with_name(f"{self._place.name}.wait"))
        try:
            wait_for_lock(waiting, shared=True)
            end = time.monotonic() + patience
            while not self._try():
                if time.monotonic() > end:
                    raise HostError(
                        f"all {COUNT} channels to the machine are in use by other mlw commands",
                        "stop some of them, or try again later",
                    )
                time.sleep(_LOOK)
        finally:
            os.close(waiting)

    def acquire_now(self) -> bool:
        """Have a slot if one is free."""
        return self._held >= 0 or self._try()

    def release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def wanted(self) -> bool:
        """Whether somebody else waits for a slot."""
        waiting = _open(self._place.with_name(f"{self._place.name}.wait"))
        try:
            return not try_lock(waiting)
        finally:
            os.close(waiting)

    def _try(self) -> bool:
        for number in range(COUNT):
            descriptor = _open(self._place.with_name(f"{self._place.name}.{number}"))
            if try_lock(descriptor):
                self._held = descriptor
                return True
            os.close(descriptor)
        return False


def locked(path: Path, patience: float, tired: Callable[[], HostError]) -> int:
    """The descriptor of a lock; waits for it."""
    descriptor = _open(path)
    end = time.monotonic() + patience
    while not try_lock(descriptor):
        if time.monotonic() > end:
            os.close(descriptor)
            raise tired()
        time.sleep(_LOOK)
    return descriptor


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
