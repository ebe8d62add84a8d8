"""The sign of life that supervisors and conductors leave in the run folder: the time of a file."""

from __future__ import annotations

import time

from .journal import log
from .pending_ending import is_deleted
from .shared.files import touch
from .shared.layout import RunFolder

INTERVAL = 5.0


class Heartbeat:
    """Of one process. A disk that takes no writes does not end it; a run folder that was deleted does."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._next = 0.0
        self._complaint = ""

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def beat(self) -> None:
        """Write it if it is due."""
        if not self.is_due():
            return
        self._next = time.monotonic() + INTERVAL
        try:
            touch(self._run.heartbeat)
            self._complaint = ""
        except OSError as error:
            if is_deleted(self._run):
                raise
            if str(error) != self._complaint:
                self._complaint = str(error)
                log("cannot write the heartbeat, retrying: %s" % error)
