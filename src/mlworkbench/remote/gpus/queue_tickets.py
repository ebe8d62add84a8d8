"""The queue of one user's runs for the GPUs of one machine: a file each, in the order of submission.

``<root>/gpus/queue/<when>-<run id>`` says which GPUs a run may get. A ticket counts for as long as its run has a
supervisor: whoever dies loses its place.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

from ..shared import machine
from ..shared.files import read_json, write_note
from ..shared.layout import Root

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

# Whoever still prepares its environment keeps its place, but for a few seconds only also the GPUs from the others.
PREPARING = 10.0
_PATIENCE = 10.0


class Busy(OSError):
    """Somebody holds the queue's lock, and not for a moment only."""


class Tickets:
    """The queue in one root folder."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._folder = os.path.join(root.path, "gpus")
        self._queue = os.path.join(self._folder, "queue")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else comes, goes or takes meanwhile."""
        os.makedirs(self._queue, mode=0o700, exist_ok=True)
        deadline = time.monotonic() + _PATIENCE
        held = machine.lock(os.path.join(self._folder, "lock"))
        while held is None:
            if time.monotonic() > deadline:
                raise Busy("the GPU queue is locked: %s" % self._folder)
            held = machine.lock(os.path.join(self._folder, "lock"))
        try:
            yield
        finally:
            os.close(held)

    def join(self, run_id: str) -> None:
        """Take a place at the end, unless the run has one."""
        with self.locked():
            names = self._names()
            if any(_run(name) == run_id for name in names):
                return
            last = max((_when(name) for name in names), default=0)
            name = "%020d-%s" % (max(time.time_ns(), last + 1), run_id)  # in order, also when the clock was set back
            self._write(name, {"uuids": None})

    def want(self, run_id: str, uuids: List[str]) -> None:
        """Say which GPUs the run may get: others pass it by for the rest."""
        for name in self._names():
            if _run(name) == run_id:
                self._write(name, {"uuids": uuids})
                return

    def leave(self, run_id: str) -> None:
        for name in self._names():
            if _run(name) == run_id:
                self._drop(name)

    def before(self, run_id: str) -> List[Tuple[str, Optional[List[str]]]]:
        """Runs that came earlier, each with the GPUs that it may get; None: not known yet, so it may be any."""
        found: List[Tuple[str, Optional[List[str]]]] = []
        for name in self._names():
            other = _run(name)
            if other == run_id:
                break
            if not machine.is_locked(self._root.run(other).lock):
                self._drop(name)  # dead, with its boot or without
                continue
            wanted = (read_json(os.path.join(self._queue, name)) or {}).get("uuids")
            if wanted is not None or time.time_ns() - _when(name) < PREPARING * 1e9:
                found.append((other, wanted))
        return found

    def _names(self) -> List[str]:
        try:
            found = os.listdir(self._queue)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name[:20].isdigit() and not name.endswith(".part"))

    def _write(self, name: str, data: Dict[str, Any]) -> None:
        write_note(os.path.join(self._queue, name), data)

    def _drop(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self._queue, name))
        except FileNotFoundError:
            pass  # two of them saw that it is dead


def _run(name: str) -> str:
    return name[21:]


def _when(name: str) -> int:
    return int(name[:20])
