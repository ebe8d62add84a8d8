"""While a run lasts: what its GPUs do, a line per look in ``gpu.jsonl``, and at the end the sum of it."""

from __future__ import annotations

import json
import os

from ..process_usage import Effort
from .source import open_source
from .tally import Tally
from .whose import Processes, owner_of, sees_host

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence

    from .whose import Owner

# Seconds between two looks, for a run that is younger than so many seconds. Short runs deserve a close look.
_PACES = ((10.0, 0.5), (600.0, 1.0), (7200.0, 5.0))
_SLOWEST = 15.0
_ENERGY, _TRAFFIC, _EFFORT = 60.0, 10.0, 10.0  # how often the dear questions are asked
_TRUST = 10.0  # seconds for which a process number is taken to mean the same process
_SOON = 2.0  # … and how soon they are asked first, so that short runs have them
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_LARGEST = 64 << 20  # bytes of gpu.jsonl


class Sampler:
    """Of the GPUs named by ``uuids``, or of all; ``owner`` is the run. Raises NoNvml if nobody can be asked."""

    def __init__(self, uuids: Optional[Sequence[str]], owner: Owner, path: str) -> None:
        self._source = open_source(uuids)
        self._tallies = {uuid: Tally(uuid, *self._source.names[uuid]) for uuid in self._source.names}
        for uuid in uuids or ():
            if uuid not in self._tallies:
                self._tallies[uuid] = Tally(uuid, None, None)
                self._tallies[uuid].lost = {"at": 0.0, "why": "it was missing when the run started"}
        self._owner = owner
        self._path = path
        self._file: Optional[int] = None  # kept open: it is written for as long as the run lasts
        self._room = 0
        self._effort = Effort(lambda: owner.roots)
        self._table = Processes()
        self._known: Dict[int, Dict[str, Any]] = {}
        # A library that somebody named (a test's) speaks of processes as we see them.
        self._host = sees_host() is not False or bool(os.environ.get("MLW_NVML_LIBRARY"))
        self._openers: List[Dict[str, Any]] = []
        self._begun: Optional[float] = None
        self._last = self._next = 0.0
        self._due = {"energy": 0.0, "traffic": _SOON, "effort": 0.0}

    @property
    def opened(self) -> Optional[bool]:
        """Whether a process of the run has been seen on a GPU; None if that cannot be known."""
        if any(tally.pids for tally in self._tallies.values()):
            return True
        return False if any(tally.attributed for tally in self._tallies.values()) else None

    def wait(self, now: float) -> float:
        """Seconds until the next look is due."""
        return 0.0 if self._begun is None else max(0.0, self._next - now)

    def tick(self, now: float) -> bool:
        """A look, if it is time; ``now`` is a monotonic clock. Tells whether there was one."""
        if self._begun is None:
            self._begun = self._last = now
        elif now < self._next:
            return False
        age = now - self._begun
        self._next = now + max(self._source.pace, next((pace for until, pace in _PACES if age < until), _SLOWEST))
        self._look_rarely(now, age)
        row = []
        for uuid, figures in self._source.read().items():
            tally = self._tallies[uuid]
            if isinstance(figures, str):
                tally.lost = tally.lost or {"at": round(age, 3), "why": figures}
                row.append({"uuid": uuid, "lost": figures})
                continue
            own = self._own(figures["processes"], now)
            tally.add(now - self._last, figures, own)
            row.append(_shown(uuid, figures, own))
        self._last = now
        self._append(age, row)
        return True

    def _look_rarely(self, now: float, age: float) -> None:
        if age >= self._due["effort"]:
            self._due["effort"] = age + (_EFFORT if age > _EFFORT else 2.0)
            self._effort.look(now)
            if not self._host:
                self._openers = [self._opener(pid) for pid in self._effort.pids() if opens_gpu(pid)]
        if age >= self._due["traffic"]:
            self._due["traffic"] = age + _TRAFFIC
            for uuid, tally in self._tallies.items():
                tally.add_traffic(now, self._source.traffic(uuid))
        if age >= self._due["energy"]:
            self._due["energy"] = age + _ENERGY
            self._read_energy()

    def _read_energy(self) -> None:
        for uuid, tally in self._tallies.items():
            if tally.lost is None:
                tally.add_energy(self._source.energy(uuid))

    def _own(self, processes: Optional[List[Dict[str, Any]]], now: float) -> Optional[List[Dict[str, Any]]]:
        """The run's processes among those; None if it cannot be known."""
        if not self._host:
            return self._openers  # NVML tells the numbers of the machine around this container
        if processes is None:
            return None
        found = []
        for one in processes:
            facts = self._facts(one["pid"], now)
            one.update(name=facts["name"], user=facts["user"])
            if facts["mine"]:
                found.append(one)
        return found

    def _facts(self, pid: int, now: float) -> Dict[str, Any]:
        """Asked once: a number counts only together with the time that its process began."""
        known = self._known.get(pid)
        if known is not None and now < known["until"]:
            return known
        alive = self._table.facts(pid)
        start = alive[1] if alive else None
        if known is None or known["start"] != start:
            if len(self._known) > 1000:
                self._known.clear()
            mine = alive is not None and owner_of(pid, [self._owner], self._table) is not None
            known = {"mine": mine, "name": self._table.name(pid), "user": self._table.user(pid), "start": start}
            self._known[pid] = known
        known["until"] = now + (_TRUST if alive else 0.0)
        return known

    def _opener(self, pid: int) -> Dict[str, Any]:
        return {"pid": pid, "memory": None, "name": self._table.name(pid), "user": self._table.user(pid)}

    def _append(self, age: float, row: List[Dict[str, Any]]) -> None:
        line = json.dumps({"t": round(age, 2), "gpus": row}, separators=(",", ":")) + "\n"
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _CLOEXEC, 0o600)
                self._room = _LARGEST - os.fstat(self._file).st_size
            if self._room > 0:
                self._room -= os.write(self._file, line.encode("ascii"))
        except OSError:
            pass  # a full disk must not end the look at the GPU: the sum is told all the same

    def finish(self) -> Dict[str, Any]:
        """The sum; nothing may be asked afterwards."""
        self._read_energy()
        self._source.close()
        if self._file is not None:
            os.close(self._file)
        summary: Dict[str, Any] = {"gpus": [one.summary() for one in self._tallies.values()], "host": self._host}
        summary.update(self._effort.summary())
        return summary


def opens_gpu(pid: int, proc: str = "/proc") -> bool:
    """Whether a process holds a card open: who does not, cannot use it."""
    folder = "%s/%d/fd" % (proc, pid)
    try:
        for one in os.listdir(folder):
            device = os.readlink("%s/%s" % (folder, one))
            if device.startswith("/dev/nvidia") and device[len("/dev/nvidia") :].isdigit():
                return True
    except OSError:
        pass  # it has just ended, or is another user's
    return False


def _shown(uuid: str, figures: Dict[str, Any], own: "Optional[List[Dict[str, Any]]]") -> Dict[str, Any]:
    """As it is kept. Memory of the run's own processes: None if unknown."""
    sizes = None if own is None else [one["memory"] for one in own]
    row: Dict[str, Any] = {"uuid": uuid}
    row.update((name, figures[name]) for name in ("utilisation", "memory", "power", "temperature", "reasons"))
    row["own"] = sum(sizes) if sizes is not None and None not in sizes else None
    row["processes"] = None if own is None else len(own)
    return row
