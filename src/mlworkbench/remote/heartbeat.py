"""The heartbeat of supervisors and sweep conductors: the modification time of a file in the run folder."""

from __future__ import annotations

import time

from .journal import log
from .pending_ending import is_deleted
from .shared.atomic_files import touch
from .shared.layout import RunFolder

INTERVAL = 5.0


class Heartbeat:
    """The heartbeat of one process.

    If a write fails, the process continues, unless the run folder was deleted.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._next_beat = 0.0
        self._last_error = ""

    def is_due(self) -> bool:
        return time.monotonic() >= self._next_beat

    def beat(self) -> None:
        """Write the heartbeat if it is due."""
        if not self.is_due():
            return
        self._next_beat = time.monotonic() + INTERVAL
        try:
            touch(self._run.heartbeat)
            self._last_error = ""
        except OSError as error:
            if is_deleted(self._run):
                raise
            if str(error) != self._last_error:
                self._last_error = str(error)
                log("cannot write the heartbeat, retrying: %s" % error)
