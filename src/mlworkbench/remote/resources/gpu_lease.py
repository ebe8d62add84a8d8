"""The GPUs that a run holds: wait for them before the start, pass them to the script, give them back at the end.

What loads much is loaded only for runs that ask for GPUs, or runs in other processes (``gpus/apart.py``).
"""

from __future__ import annotations

import os
import sys
import time

from ..journal import log
from ..shared.files import read_json
from ..shared.gpu_request import NONE, parse

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..gpus.lease import Granted, Leases
    from ..journal import Journal
    from ..run_spec import Spec
    from ..shared.failure import Reason
    from ..shared.gpu_request import Request
    from ..shared.layout import Root, RunFolder

CANCELLED = "canceled before it started"
# Seconds between two tries in the queue, for a run that has waited less than so many: who waits for days is cheap.
_PACES = ((5.0, 0.1), (20.0, 0.4))
_SLOWEST = 1.2
_LOOK = 0.4  # how long a cancel may go unnoticed
_AGAIN = 5.0  # seconds between attempts to hold what the launcher of a dead supervisor still holds
_HIDES = ("", "-1")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def join(root: Root, spec: Spec) -> None:
    """Take a place in the queue."""
    from ..gpus.tickets import Tickets  # noqa: PLC0415 - as in GpuLease

    try:
        Tickets(root).join(spec["id"])
    except OSError as error:
        log("cannot join the GPU queue: %s" % error)  # obtain tries again, and reports it


class GpuLease:
    """The GPUs of one run that asks for some, or asks that none be visible: that needs little, and loads little."""

    def __init__(self, root: Root, run: RunFolder, spec: Spec, journal: Journal) -> None:
        self._root = root
        self._run = run
        self._spec = spec
        self._journal = journal
        self._asked = str(spec["gpus"])
        self._leases: Optional[Leases] = None
        self._recalled = False
        self._next_hold = 0.0

    def obtain(self, beat: Callable[[], None]) -> Optional[Reason]:
        """Wait for what was asked for. None: the run may start; else why it never will."""
        try:
            request = parse(self._asked)
            if request.kind == NONE:
                self._hide()
                return None
            if sys.platform != "linux":
                return "GPU leases are supported on Linux only"
            from ..gpus.lease import Granted  # noqa: PLC0415 - where GPUs are asked for

            granted = self._queue(request, beat)
        except ValueError as error:
            return "invalid GPU request: %s" % error
        if not isinstance(granted, Granted):
            return granted
        self._give(granted)
        return None

    def _queue(self, request: Request, beat: Callable[[], None]) -> "Granted | Reason":
        from ..gpus.lease import Granted, Impossible, Waiting  # noqa: PLC0415 - where GPUs are asked for

        self._leases = leases = self._make_leases()
        leases.join()
        told, begun, due = None, time.monotonic(), 0.0
        while not (os.path.exists(self._run.cancel) or os.path.exists(self._run.gate)):
            if time.monotonic() < due:
                time.sleep(min(_LOOK, max(0.0, due - time.monotonic())))
                continue
            try:
                outcome = leases.take(request)
            except Impossible as reason:
                return reason.failure
            except OSError as error:  # a home folder that is away for a moment must not cost a place in the queue
                outcome = Waiting("the GPU queue cannot be read: %s" % error)
            if isinstance(outcome, Granted):
                return outcome
            if outcome.reason != told:
                told = outcome.reason
                self._journal.add("queued", {"reason": told})
            beat()
            waited = time.monotonic() - begun
            due = time.monotonic() + next((pace for until, pace in _PACES if waited < until), _SLOWEST)
        return CANCELLED

    def _give(self, granted: Granted) -> None:
        """What the launcher starts the script with. The spec on disk stays as it was decided."""
        from ..gpus.observer import describe  # noqa: PLC0415 - as above

        uuids = [gpu["uuid"] for gpu in granted.gpus]
        environment = self._spec["environment"]
        replaced = None
        if environment.get(_VISIBLE) not in _HIDES:  # who hides them all means it
            replaced = self._own_choice()
            environment[_VISIBLE] = ",".join(uuids)
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        self._show_container(uuids)
        told = describe(granted.gpus, {"driver": granted.driver, "cuda": granted.cuda})
        self._journal.add("gpus", dict(told, held=True, asked=self._asked, replaced=replaced))

    def _hide(self) -> None:
        replaced = self._own_choice()
        self._spec["environment"][_VISIBLE] = ""
        self._show_container(None)
        if replaced not in (None, *_HIDES):
            self._journal.add("gpus", {"gpus": [], "held": False, "asked": self._asked, "replaced": replaced})

    def _show_container(self, uuids: Optional[List[str]]) -> None:
        container = self._spec.get("container")
        if container:
            container["gpus"] = uuids

    def _own_choice(self) -> Optional[str]:
        """The GPUs that the user's own variable names."""
        own: Optional[str] = self._spec["environment"].get(_VISIBLE)
        if own is None and _VISIBLE in self._spec.get("inherit", ()):
            own = os.environ.get(_VISIBLE)
        return own

    def descriptors(self) -> List[int]:
        """For the launcher to keep open: should the supervisor be killed, the GPUs stay the run's."""
        return self._leases.held.descriptors() if self._leases else []

    def keep(self) -> None:
        """Hold what another supervisor obtained, in its place."""
        if not self._recalled:
            self._recalled = True
            self._recall()
        elif self._leases is not None and self._next_hold and time.monotonic() >= self._next_hold:
            self._next_hold = time.monotonic() + _AGAIN if self._leases.again() else 0.0

    def _recall(self) -> None:
        if self._leases is not None or not os.path.exists(self._run.lease):
            return
        self._leases = self._make_leases()
        self._next_hold = time.monotonic() + _AGAIN if self._leases.again() else 0.0
        uuids = (read_json(self._run.lease) or {}).get("uuids")
        if uuids and isinstance(uuids, list):
            self._show_container(uuids)

    def release(self) -> None:
        """Give the GPUs back, and the place in the queue."""
        if self._leases is None and self._asked == NONE and not os.path.exists(self._run.lease):
            return
        (self._leases or self._make_leases()).release()
        self._next_hold = 0.0

    def _make_leases(self) -> Leases:
        from ..gpus.lease import Leases  # noqa: PLC0415 - as above

        return Leases(self._root, self._run, self._spec["id"])
