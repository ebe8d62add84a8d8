"""GPUs of a run: asked for, waited for, held, given back. Only one run of any user of this machine holds a GPU.

The kernel keeps users apart (``sockets.py``), files keep the order among one user's runs (``tickets.py``). What a run
got is in its ``lease.json``; a supervisor that takes over holds it again for as long as something of the run lives.
"""

from __future__ import annotations

import os
import time

from ..notes import alive, read_started, read_starting
from ..shared import machine
from ..shared.files import read_json, write_note
from ..shared.gpu_request import Request
from ..shared.layout import Root, RunFolder
from . import apart
from .choice import Impossible, candidates, pick, use_of
from .sockets import Held, Holder, holders
from .tickets import Tickets

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Gpu = Dict[str, Any]

# Seconds between two looks at GPUs that strangers use: each look costs some processor time.
_FIRST, _LONGEST = 1.0, 5.0

__all__ = ["Granted", "Impossible", "Leases", "Waiting"]


class Granted:
    """What a run got: its GPUs as they were at that moment."""

    def __init__(self, gpus: List[Gpu], looked: Dict[str, Any]) -> None:
        self.gpus = gpus
        self.driver = looked.get("driver")
        self.cuda = looked.get("cuda")


class Waiting:
    """Not yet, and why not."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Leases:
    """Of one run."""

    def __init__(self, root: Root, run: RunFolder, run_id: str) -> None:
        self.held = Held()
        self._root = root
        self._run = run
        self._id = run_id
        self._tickets = Tickets(root)
        self._folder = os.path.join(root.path, "gpus", "held")
        self._fitting: Optional[List[Gpu]] = None
        self._pause = _FIRST
        self._next_look = 0.0
        self._in_use = ""

    # -- getting them ----------------------------------------------------------------------------------------

    def join(self) -> None:
        """Take a place in the queue."""
        self._tickets.join(self._id)

    def take(self, request: Request) -> "Granted | Waiting":
        """What was asked for, or why to wait; raises Impossible. Cheap while others hold what it would need."""
        looked = None
        if self._fitting is None:
            looked = apart.look()
            self._fitting = candidates(request, looked)
            self._tickets.want(self._id, [gpu["uuid"] for gpu in self._fitting])
        _, reason = pick(request, self._fitting, self._taken(), self._kept())
        if reason is not None:
            return Waiting(reason)
        if looked is None:
            if time.monotonic() < self._next_look:
                return Waiting(self._in_use)
            looked = apart.look()
            try:
                self._fitting = candidates(request, looked)
            except Impossible as reason:  # it was possible: a driver in trouble, or a GPU that must be reset
                return self._later(str(reason))
        return self._grab(request, self._fitting, looked)

    def _grab(self, request: Request, fitting: List[Gpu], looked: Dict[str, Any]) -> "Granted | Waiting":
        with self._tickets.locked():
            uuids, reason = pick(request, fitting, dict(_used(fitting), **self._taken()), self._kept())
            if reason is None:
                lost = self.held.take(uuids, self._id)
                if lost is None:
                    self._note(uuids)
                    self._tickets.leave(self._id)
                    return Granted([gpu for gpu in fitting if gpu["uuid"] in uuids], looked)
                now = holders().get(lost)  # another process was quicker
                reason = "GPU %s %s" % (
                    _number(fitting, lost),
                    _holder(now) if now else "was briefly held by another process",
                )
        return self._later(reason)

    def _later(self, reason: str) -> Waiting:
        """The next look costs something: not at once."""
        self._in_use = reason
        self._next_look = time.monotonic() + self._pause
        self._pause = min(_LONGEST, self._pause * 1.5)
        return Waiting(reason)

    def _kept(self) -> Dict[str, str]:
        """GPUs that runs before us may get."""
        kept: Dict[str, str] = {}
        for other, uuids in self._tickets.before(self._id):
            wanted = [gpu["uuid"] for gpu in self._fitting or []] if uuids is None else uuids
            for uuid in wanted:
                kept.setdefault(uuid, "is reserved for run %s, which is ahead in the queue" % other)
        return kept

    def _taken(self) -> Dict[str, str]:
        """GPUs that somebody holds."""
        taken = {}
        for gpu in self._fitting or []:
            other = (read_json(self._place(gpu["uuid"])) or {}).get("run")
            if isinstance(other, str) and other != self._id and self._lives(other):
                taken[gpu["uuid"]] = "held by run %s" % other
        for uuid, holder in holders().items():
            if uuid not in taken and uuid not in self.held.uuids:
                taken[uuid] = _holder(holder)
        return taken

    def _lives(self, run_id: str) -> bool:
        """Whether something of a run lives that may use its GPU: also one that nobody supervises at the moment."""
        run = self._root.run(run_id)
        if machine.is_locked(run.lock):
            return True
        noted = read_json(run.lease) or {}
        if noted.get("boot_id") != machine.identity()["boot_id"] or os.path.exists(run.exit):
            return False
        facts = read_started(run) or read_starting(run)
        if facts is None:
            return False
        return alive((facts["pid"], facts["start"])) or alive((facts["launcher"], facts.get("launcher_start")))

    # -- having them -----------------------------------------------------------------------------------------

    def _place(self, uuid: str) -> str:
        return os.path.join(self._folder, uuid + ".json")

    def _note(self, uuids: List[str]) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_note(self._run.lease, dict(machine.identity(), uuids=uuids, time=time.time()))
        for uuid in uuids:
            write_note(self._place(uuid), {"run": self._id})

    def again(self) -> bool:
        """Hold what a predecessor held, as far as nobody does; whether there is more to hold."""
        noted = read_json(self._run.lease, "uuids", "boot_id")
        if noted is None or noted["boot_id"] != machine.identity()["boot_id"]:
            return False
        missing = [uuid for uuid in noted["uuids"] if uuid not in self.held.uuids]
        for uuid in missing:
            self.held.add(uuid, self._id)  # in vain while the launcher of the run has it
        return len(self.held.uuids) < len(noted["uuids"])

    def release(self) -> None:
        """Let go of the GPUs, and of the place in the queue."""
        noted = (read_json(self._run.lease) or {}).get("uuids")
        for uuid in noted if isinstance(noted, list) else []:
            if (read_json(self._place(uuid)) or {}).get("run") == self._id:
                _unlink(self._place(uuid))
        _unlink(self._run.lease)
        self.held.release()
        self._tickets.leave(self._id)


def _used(fitting: List[Gpu]) -> Dict[str, str]:
    """GPUs that somebody uses without holding them."""
    from .whose import explain  # noqa: PLC0415 - only where somebody is waited for

    for gpu in fitting:
        explain(gpu.get("processes"), ())
    found = {gpu["uuid"]: use_of(gpu) for gpu in fitting}
    return {uuid: why for uuid, why in found.items() if why}


def _holder(holder: Holder) -> str:
    from .whose import user_name  # noqa: PLC0415 - only where somebody is waited for

    user = "" if holder.uid is None else "user %s" % user_name(holder.uid)
    if holder.run is None:
        pid = holder.pid()
        process = "" if pid is None else " (pid %d)" % pid
        return "held by %s%s (not an mlw run)" % (user or "a process", process)
    if not holder.verified:  # an old kernel: the name is what the holder claims
        return "held by run %s of %s (not verified)" % (holder.run, user or "an unknown user")
    return "held by run %s" % holder.run + ("" if holder.uid == os.getuid() else " of %s" % user)


def _number(fitting: List[Gpu], uuid: str) -> str:
    return next((str(gpu["index"]) for gpu in fitting if gpu["uuid"] == uuid), uuid)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # nothing was noted
