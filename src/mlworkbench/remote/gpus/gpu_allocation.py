"""Queue for, acquire, hold, and release the GPUs of a run. Each GPU is held by at most one run.

This applies to all users of a machine: abstract sockets exclude other users (``lease_sockets.py``),
and ticket files order the runs of one user (``queue_tickets.py``). ``lease.json`` lists the GPUs of
a run. A supervisor that takes over a run acquires them again while any process of the run is alive.
"""

from __future__ import annotations

import os
import time

from ..attempts import newest_attempt
from ..markers import is_alive, read_started, read_starting
from ..shared import machine
from ..shared.atomic_files import read_json, write_unsynced
from ..shared.gpu_request import Request
from ..shared.layout import Root, RunFolder
from . import inventory_process
from .gpu_selection import GpuUnavailable, describe_use, find_candidates, pick_gpus
from .lease_sockets import HeldGpus, Holder, list_holders
from .queue_tickets import Tickets

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Gpu = Dict[str, Any]

# Seconds between two queries for GPUs that are used without a lease. Each query costs CPU time.
_MIN_PAUSE, _MAX_PAUSE = 1.0, 5.0

__all__ = ["Granted", "GpuUnavailable", "Leases", "Waiting"]


class Granted:
    """The GPUs granted to a run, and the versions of the driver and of CUDA, all as queried right before."""

    def __init__(self, gpus: List[Gpu], inventory: Dict[str, Any]) -> None:
        self.gpus = gpus
        self.driver = inventory.get("driver")
        self.cuda = inventory.get("cuda")


class Waiting:
    """A result that requires the run to wait; ``reason`` explains why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Leases:
    """The GPU leases of one run."""

    def __init__(self, root: Root, run: RunFolder, run_id: str) -> None:
        self.held = HeldGpus()
        self._root = root
        self._run = run
        self._id = run_id
        self._tickets = Tickets(root)
        self._folder = os.path.join(root.path, "gpus", "held")
        self._candidates: Optional[List[Gpu]] = None
        self._pause = _MIN_PAUSE
        self._next_look = 0.0
        self._wait_reason = ""

    # -- acquire -------------------------------------------------------------------------------------------

    def join_queue(self) -> None:
        """Join the queue."""
        self._tickets.join(self._id)

    def try_acquire(self, request: Request) -> "Granted | Waiting":
        """Return the requested GPUs, or the reason to wait. Raise GpuUnavailable if waiting cannot help.

        The call is cheap while other runs hold the GPUs that this run needs.
        """
        inventory = None
        if self._candidates is None:
            inventory = inventory_process.query_gpus()
            self._candidates = find_candidates(request, inventory)
            self._tickets.set_candidates(self._id, [gpu["uuid"] for gpu in self._candidates])
        _, reason = pick_gpus(request, self._candidates, self._held_gpus(), self._reserved_gpus())
        if reason is not None:
            return Waiting(reason)
        if inventory is None:
            if time.monotonic() < self._next_look:
                return Waiting(self._wait_reason)
            inventory = inventory_process.query_gpus()
            try:
                self._candidates = find_candidates(request, inventory)
            except GpuUnavailable as reason:  # available earlier, so the driver failed or a GPU must be reset
                return self._postpone(str(reason))
        return self._acquire(request, self._candidates, inventory)

    def _acquire(self, request: Request, candidates: List[Gpu], inventory: Dict[str, Any]) -> "Granted | Waiting":
        with self._tickets.locked():
            uuids, reason = pick_gpus(
                request, candidates, dict(_gpus_in_use(candidates), **self._held_gpus()), self._reserved_gpus()
            )
            if reason is None:
                refused = self.held.acquire(uuids, self._id)
                if refused is None:
                    self._record_lease(uuids)
                    self._tickets.leave(self._id)
                    return Granted([gpu for gpu in candidates if gpu["uuid"] in uuids], inventory)
                holder = list_holders().get(refused)  # another process was faster
                reason = "GPU %s %s" % (
                    _gpu_index(candidates, refused),
                    _describe_holder(holder) if holder else "was briefly held by another process",
                )
        return self._postpone(reason)

    def _postpone(self, reason: str) -> Waiting:
        """Delay the next query, because queries cost CPU time."""
        self._wait_reason = reason
        self._next_look = time.monotonic() + self._pause
        self._pause = min(_MAX_PAUSE, self._pause * 1.5)
        return Waiting(reason)

    def _reserved_gpus(self) -> Dict[str, str]:
        """Return the GPUs that runs ahead in the queue may receive, with the reason to wait."""
        reserved: Dict[str, str] = {}
        for other, uuids in self._tickets.runs_ahead(self._id):
            candidates = [gpu["uuid"] for gpu in self._candidates or []] if uuids is None else uuids
            for uuid in candidates:
                reserved.setdefault(uuid, "is reserved for run %s, which is ahead in the queue" % other)
        return reserved

    def _held_gpus(self) -> Dict[str, str]:
        """Return the GPUs that other processes hold, with the reason to wait."""
        held = {}
        for gpu in self._candidates or []:
            other = (read_json(self._marker_path(gpu["uuid"])) or {}).get("run")
            if isinstance(other, str) and other != self._id and self._is_alive(other):
                held[gpu["uuid"]] = "held by run %s" % other
        for uuid, holder in list_holders().items():
            if uuid not in held and uuid not in self.held.uuids:
                held[uuid] = _describe_holder(holder)
        return held

    def _is_alive(self, run_id: str) -> bool:
        """Return whether the run has a supervisor or another process that may use its GPUs."""
        run = newest_attempt(self._root.run(run_id))
        if machine.is_locked(run.lock):
            return True
        lease = read_json(run.lease) or {}
        if lease.get("boot_id") != machine.identity()["boot_id"] or os.path.exists(run.exit):
            return False
        process = read_started(run) or read_starting(run)
        if process is None:
            return False
        return is_alive((process["pid"], process["start"])) or is_alive(
            (process["launcher"], process.get("launcher_start"))
        )

    # -- hold and release ----------------------------------------------------------------------------------

    def _marker_path(self, uuid: str) -> str:
        return os.path.join(self._folder, uuid + ".json")

    def _record_lease(self, uuids: List[str]) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_unsynced(self._run.lease, dict(machine.identity(), uuids=uuids, time=time.time()))
        for uuid in uuids:
            write_unsynced(self._marker_path(uuid), {"run": self._id})

    def reacquire(self) -> bool:
        """Acquire the GPUs that an earlier supervisor held; return whether any are still missing."""
        lease = read_json(self._run.lease, "uuids", "boot_id")
        if lease is None or lease["boot_id"] != machine.identity()["boot_id"]:
            return False
        missing = [uuid for uuid in lease["uuids"] if uuid not in self.held.uuids]
        for uuid in missing:
            self.held.acquire_one(uuid, self._id)  # fails while the run's launcher still holds it
        return len(self.held.uuids) < len(lease["uuids"])

    def release(self) -> None:
        """Release the GPUs and leave the queue."""
        uuids = (read_json(self._run.lease) or {}).get("uuids")
        for uuid in uuids if isinstance(uuids, list) else []:
            if (read_json(self._marker_path(uuid)) or {}).get("run") == self._id:
                _unlink(self._marker_path(uuid))
        _unlink(self._run.lease)
        self.held.release()
        self._tickets.leave(self._id)


def _gpus_in_use(candidates: List[Gpu]) -> Dict[str, str]:
    """Return the GPUs that processes use without a lease, with a description of the use."""
    from .process_owner import add_owners  # noqa: PLC0415 - only needed while waiting

    for gpu in candidates:
        add_owners(gpu.get("processes"), ())
    uses = {gpu["uuid"]: describe_use(gpu) for gpu in candidates}
    return {uuid: use for uuid, use in uses.items() if use}


def _describe_holder(holder: Holder) -> str:
    from .process_owner import user_name  # noqa: PLC0415 - only needed while waiting

    user = "" if holder.uid is None else "user %s" % user_name(holder.uid)
    if holder.run is None:
        pid = holder.pid()
        process = "" if pid is None else " (pid %d)" % pid
        return "held by %s%s (not an mlw run)" % (user or "a process", process)
    if not holder.verified:  # an old kernel does not report the owner, so any user can claim a run ID
        return "held by run %s of %s (not verified)" % (holder.run, user or "an unknown user")
    return "held by run %s" % holder.run + ("" if holder.uid == os.getuid() else " of %s" % user)


def _gpu_index(candidates: List[Gpu], uuid: str) -> str:
    return next((str(gpu["index"]) for gpu in candidates if gpu["uuid"] == uuid), uuid)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # nothing was recorded
