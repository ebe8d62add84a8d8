"""The GPU lease of a run: wait for GPUs, pass them to the script, and release them at the end.

Expensive modules are imported only for runs that request GPUs, or in other processes
(``gpus/inventory_process.py``).
"""

from __future__ import annotations

import os
import sys
import time

from ..journal import log
from ..shared.atomic_files import read_json
from ..shared.gpu_request import NONE, parse

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..gpus.gpu_allocation import Granted, Leases
    from ..journal import Journal
    from ..run_spec import Spec
    from ..shared.failure import Reason
    from ..shared.gpu_request import Request
    from ..shared.layout import Root, RunFolder

CANCELLED = "canceled before it started"
# (seconds waited so far, seconds between attempts to acquire GPUs); waiting for days must be cheap
_PAUSES = ((5.0, 0.1), (20.0, 0.4))
_MAX_PAUSE = 1.2
_CANCEL_CHECK_INTERVAL = 0.4  # maximum seconds until a cancel is noticed
_HOLD_INTERVAL = 5.0  # seconds between attempts to take over GPUs that the launcher of a dead supervisor still holds
_HIDING_VALUES = ("", "-1")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def join_gpu_queue(root: Root, spec: Spec) -> None:
    """Add the run to the GPU queue."""
    from ..gpus.queue_tickets import Tickets  # noqa: PLC0415 - as in GpuLease

    try:
        Tickets(root).join(spec["id"])
    except OSError as error:
        log("cannot join the GPU queue: %s" % error)  # ``obtain`` tries again and reports the error


class GpuLease:
    """The GPUs of a run that requests GPUs, or that requests to hide all GPUs.

    For a run that hides all GPUs, no module of ``gpus`` is imported.
    """

    def __init__(self, root: Root, run: RunFolder, spec: Spec, journal: Journal) -> None:
        self._root = root
        self._run = run
        self._spec = spec
        self._journal = journal
        self._requested = str(spec["gpus"])
        self._leases: Optional[Leases] = None
        self._restored = False
        self._next_hold = 0.0

    def obtain(self, beat: Callable[[], None]) -> Optional[Reason]:
        """Wait for the requested GPUs. Return None if the run may start, or why it never will."""
        try:
            request = parse(self._requested)
            if request.kind == NONE:
                self._hide_gpus()
                return None
            if sys.platform != "linux":
                return "GPU leases are supported on Linux only"
            from ..gpus.gpu_allocation import Granted  # noqa: PLC0415 - only for GPU requests

            granted = self._wait_in_queue(request, beat)
        except ValueError as error:
            return "invalid GPU request: %s" % error
        if not isinstance(granted, Granted):
            return granted
        self._apply_grant(granted)
        return None

    def _wait_in_queue(self, request: Request, beat: Callable[[], None]) -> "Granted | Reason":
        from ..gpus.gpu_allocation import GpuUnavailable, Granted, Waiting  # noqa: PLC0415 - only for GPU requests

        self._leases = leases = self._make_leases()
        leases.join_queue()
        last_reason, started_at, next_try = None, time.monotonic(), 0.0
        while not (os.path.exists(self._run.cancel) or os.path.exists(self._run.start_decision)):
            if time.monotonic() < next_try:
                time.sleep(min(_CANCEL_CHECK_INTERVAL, max(0.0, next_try - time.monotonic())))
                continue
            try:
                outcome = leases.try_acquire(request)
            except GpuUnavailable as reason:
                return reason.failure
            except OSError as error:  # do not leave the queue if the home folder is briefly unavailable
                outcome = Waiting("the GPU queue cannot be read: %s" % error)
            if isinstance(outcome, Granted):
                return outcome
            if outcome.reason != last_reason:
                last_reason = outcome.reason
                self._journal.add("queued", {"reason": last_reason})
            beat()
            waited = time.monotonic() - started_at
            next_try = time.monotonic() + next((pace for until, pace in _PAUSES if waited < until), _MAX_PAUSE)
        return CANCELLED

    def _apply_grant(self, granted: Granted) -> None:
        """Set the GPUs in the in-memory spec, which the launcher uses to start the script.

        The spec on disk stays unchanged.
        """
        from ..gpus.gpu_observer import event_data  # noqa: PLC0415 - as above

        uuids = [gpu["uuid"] for gpu in granted.gpus]
        environment = self._spec["environment"]
        replaced = None
        if environment.get(_VISIBLE) not in _HIDING_VALUES:  # a value that hides all GPUs is intentional
            replaced = self._user_choice()
            environment[_VISIBLE] = ",".join(uuids)
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        self._set_container_gpus(uuids)
        data = event_data(granted.gpus, {"driver": granted.driver, "cuda": granted.cuda})
        self._journal.add("gpus", dict(data, held=True, asked=self._requested, replaced=replaced))

    def _hide_gpus(self) -> None:
        replaced = self._user_choice()
        self._spec["environment"][_VISIBLE] = ""
        self._set_container_gpus(None)
        if replaced not in (None, *_HIDING_VALUES):
            self._journal.add("gpus", {"gpus": [], "held": False, "asked": self._requested, "replaced": replaced})

    def _set_container_gpus(self, uuids: Optional[List[str]]) -> None:
        container = self._spec.get("container")
        if container:
            container["gpus"] = uuids

    def _user_choice(self) -> Optional[str]:
        """Return the GPUs that the user selected in the environment variable."""
        value: Optional[str] = self._spec["environment"].get(_VISIBLE)
        if value is None and _VISIBLE in self._spec.get("inherit", ()):
            value = os.environ.get(_VISIBLE)
        return value

    def descriptors(self) -> List[int]:
        """Return descriptors for the launcher to keep open.

        They keep the GPUs leased to the run if the supervisor is killed.
        """
        return self._leases.held.descriptors() if self._leases else []

    def keep(self) -> None:
        """Take over the GPUs that a previous supervisor obtained."""
        if not self._restored:
            self._restored = True
            self._restore()
        elif self._leases is not None and self._next_hold and time.monotonic() >= self._next_hold:
            self._next_hold = time.monotonic() + _HOLD_INTERVAL if self._leases.reacquire() else 0.0

    def _restore(self) -> None:
        if self._leases is not None or not os.path.exists(self._run.lease):
            return
        self._leases = self._make_leases()
        self._next_hold = time.monotonic() + _HOLD_INTERVAL if self._leases.reacquire() else 0.0
        uuids = (read_json(self._run.lease) or {}).get("uuids")
        if uuids and isinstance(uuids, list):
            self._set_container_gpus(uuids)

    def release(self) -> None:
        """Release the GPUs and the place in the queue."""
        if self._leases is None and self._requested == NONE and not os.path.exists(self._run.lease):
            return
        (self._leases or self._make_leases()).release()
        self._next_hold = 0.0

    def _make_leases(self) -> Leases:
        from ..gpus.gpu_allocation import Leases  # noqa: PLC0415 - as above

        return Leases(self._root, self._run, self._spec["id"])
