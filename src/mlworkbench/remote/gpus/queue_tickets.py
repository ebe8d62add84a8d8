"""The queue of one user's runs for the GPUs of one machine.

Each run has one ticket file, and tickets are in order of submission.
``<root>/gpus/queue/<timestamp>-<run ID>`` lists the GPUs that a run may receive. A ticket is valid
while its run has a supervisor; a run whose supervisor dies loses its place.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

from ..shared import machine
from ..shared.atomic_files import read_json, write_unsynced
from ..shared.layout import Root

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

# Seconds for which a run reserves all GPUs while its environment is prepared. Later, it only keeps its place.
PREPARATION_TIME = 10.0
_LOCK_TIMEOUT = 10.0


class QueueLocked(OSError):
    """An error raised when another process has held the queue lock for too long."""


class Tickets:
    """The ticket queue in a root folder."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._folder = os.path.join(root.path, "gpus")
        self._queue = os.path.join(self._folder, "queue")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the queue lock. In the meantime, no other run joins, leaves, or acquires GPUs."""
        os.makedirs(self._queue, mode=0o700, exist_ok=True)
        deadline = time.monotonic() + _LOCK_TIMEOUT
        lock = machine.lock(os.path.join(self._folder, "lock"))
        while lock is None:
            if time.monotonic() > deadline:
                raise QueueLocked("the GPU queue is locked: %s" % self._folder)
            lock = machine.lock(os.path.join(self._folder, "lock"))
        try:
            yield
        finally:
            os.close(lock)

    def join(self, run_id: str) -> None:
        """Add the run to the end of the queue, unless it is already in the queue."""
        with self.locked():
            names = self._names()
            if any(_run_id(name) == run_id for name in names):
                return
            last = max((_timestamp(name) for name in names), default=0)
            name = "%020d-%s" % (max(time.time_ns(), last + 1), run_id)  # keeps the order if the clock is set back
            self._write(name, {"uuids": None})

    def set_candidates(self, run_id: str, uuids: List[str]) -> None:
        """Record which GPUs the run may receive. Later runs can acquire all others."""
        for name in self._names():
            if _run_id(name) == run_id:
                self._write(name, {"uuids": uuids})
                return

    def leave(self, run_id: str) -> None:
        for name in self._names():
            if _run_id(name) == run_id:
                self._remove(name)

    def runs_ahead(self, run_id: str) -> List[Tuple[str, Optional[List[str]]]]:
        """Return the earlier runs with the GPUs that they may receive.

        None means that these GPUs are not known yet, so the run may receive any GPU.
        """
        runs: List[Tuple[str, Optional[List[str]]]] = []
        for name in self._names():
            other = _run_id(name)
            if other == run_id:
                break
            if not machine.is_locked(self._root.run(other).lock):
                self._remove(name)  # its supervisor is dead
                continue
            uuids = (read_json(os.path.join(self._queue, name)) or {}).get("uuids")
            if uuids is not None or time.time_ns() - _timestamp(name) < PREPARATION_TIME * 1e9:
                runs.append((other, uuids))
        return runs

    def _names(self) -> List[str]:
        try:
            names = os.listdir(self._queue)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name[:20].isdigit() and not name.endswith(".part"))

    def _write(self, name: str, data: Dict[str, Any]) -> None:
        write_unsynced(os.path.join(self._queue, name), data)

    def _remove(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self._queue, name))
        except FileNotFoundError:
            pass  # another process removed it first


def _run_id(name: str) -> str:
    return name[21:]


def _timestamp(name: str) -> int:
    return int(name[:20])
