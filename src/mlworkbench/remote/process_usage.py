"""What the processes of a run use: processor time, memory, waiting for a disk. From /proc."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Optional, Tuple

_TICKS = float(os.sysconf("SC_CLK_TCK")) if hasattr(os, "sysconf") else 100.0
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_MOST = 4096  # processes of one run that are looked at


class Effort:
    """Below ``roots``, which may change while a run goes on."""

    def __init__(self, roots: "Callable[[], Iterable[int]]", proc: str = "/proc") -> None:
        self._roots = roots
        self._proc = proc
        self._last: Dict[int, float] = {}
        self._when: Optional[float] = None
        self._seconds = self._used = self._busiest = self._whole = 0.0
        self._looks = self._waiting = 0
        self.cores: Optional[float] = None  # processors kept busy between the last two looks
        self.memory = 0  # bytes in use at the last look; what processes share is counted for each

    def look(self, now: float) -> None:
        found = self._read_all()
        whole = sum(own + buried for own, buried, _, _ in found.values())
        self.memory = sum(resident for _, _, _, resident in found.values())
        if self._when is not None and now > self._when:
            passed = now - self._when
            self._seconds += passed
            # A child that was buried has moved into its parent's account: the sum of all knows nothing of it.
            self._used += max(0.0, whole - self._whole)
            self.cores = max(0.0, whole - self._whole) / passed
            # One process at work on one processor is what keeps a GPU waiting, however many others are idle.
            grown = [own - self._last[pid] for pid, (own, _, _, _) in found.items() if pid in self._last]
            self._busiest += min(max(grown, default=0.0), passed)
        self._looks += 1
        self._waiting += any(state == "D" for _, _, state, _ in found.values())
        self._last = {pid: own for pid, (own, _, _, _) in found.items()}
        self._whole = whole
        self._when = now

    def pids(self) -> List[int]:
        """Those that were there at the last look."""
        return list(self._last)

    def summary(self) -> "Dict[str, Optional[float]]":
        """cpu_cores: processors kept busy on average; cpu_share of all usable ones; busiest process's share of one."""
        if not self._seconds:
            return {"cpu_share": None, "cpu_cores": None, "busiest": None, "disk_share": None}
        cores = self._used / self._seconds
        return {
            "cpu_share": round(min(1.0, cores / usable()), 4),
            "cpu_cores": round(cores, 3),
            "busiest": round(self._busiest / self._seconds, 4),
            "disk_share": round(self._waiting / self._looks, 4),
        }

    def _read_all(self) -> "Dict[int, Tuple[float, float, str, int]]":
        found: Dict[int, Tuple[float, float, str, int]] = {}
        waiting = list(self._roots())
        while waiting and len(found) < _MOST:
            pid = waiting.pop()
            stat = self._stat(pid) if pid not in found else None
            if stat is not None:
                found[pid] = stat
                waiting += self._children(pid)
        return found

    def _stat(self, pid: int) -> "Optional[Tuple[float, float, str, int]]":
        """Processor seconds of its own and of its buried children, its state, and the bytes it has in memory."""
        try:
            with open("%s/%d/stat" % (self._proc, pid), "rb") as file:
                text = file.read()
        except OSError:
            return None
        fields = text[text.rindex(b")") + 2 :].split()
        own, buried = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        resident = int(fields[21]) * _PAGE if len(fields) > 21 else 0
        return own / _TICKS, buried / _TICKS, fields[0].decode("ascii", "replace"), resident

    def _children(self, pid: int) -> List[int]:
        folder = "%s/%d/task" % (self._proc, pid)
        found: List[int] = []
        try:
            for thread in os.listdir(folder):
                with open("%s/%s/children" % (folder, thread), "rb") as file:
                    found += [int(one) for one in file.read().split()]
        except OSError:
            pass  # it has just ended, or a kernel that does not tell
        return found


def usable() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
