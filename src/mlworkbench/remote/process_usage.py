"""CPU time, memory, and disk waits of a run's processes, from /proc."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Optional, Tuple

_TICKS = float(os.sysconf("SC_CLK_TCK")) if hasattr(os, "sysconf") else 100.0
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_MAX_PROCESSES = 4096  # maximum processes measured per run


class ProcessUsage:
    """CPU time, memory, and disk waits of the processes that ``roots`` returns, and of their descendants.

    ``roots`` is called for each sample, because the processes may change during a run.
    """

    def __init__(self, roots: "Callable[[], Iterable[int]]", proc: str = "/proc") -> None:
        self._roots = roots
        self._proc = proc
        self._last: Dict[int, float] = {}
        self._sampled_at: Optional[float] = None
        self._seconds = self._used = self._busiest = self._total = 0.0
        self._samples = self._waiting = 0
        self.cores: Optional[float] = None  # CPUs kept busy between the last two samples
        self.memory = 0  # bytes at the last sample; shared memory is counted once per process

    def sample(self, now: float) -> None:
        processes = self._read_processes()
        total = sum(own_time + child_time for own_time, child_time, _, _ in processes.values())
        self.memory = sum(resident for _, _, _, resident in processes.values())
        if self._sampled_at is not None and now > self._sampled_at:
            passed = now - self._sampled_at
            self._seconds += passed
            # The CPU time of a reaped child is added to its parent, so the total does not change.
            self._used += max(0.0, total - self._total)
            self.cores = max(0.0, total - self._total) / passed
            # A single busy process can keep a GPU waiting, however many others are idle.
            growth = [own_time - self._last[pid] for pid, (own_time, _, _, _) in processes.items() if pid in self._last]
            self._busiest += min(max(growth, default=0.0), passed)
        self._samples += 1
        self._waiting += any(state == "D" for _, _, state, _ in processes.values())
        self._last = {pid: own_time for pid, (own_time, _, _, _) in processes.items()}
        self._total = total
        self._sampled_at = now

    def pids(self) -> List[int]:
        """Return the processes of the last sample."""
        return list(self._last)

    def summary(self) -> "Dict[str, Optional[float]]":
        """Return averages: busy CPUs, their share of usable CPUs, the busiest process's share, and disk waits."""
        if not self._seconds:
            return {"cpu_share": None, "cpu_cores": None, "busiest": None, "disk_share": None}
        cores = self._used / self._seconds
        return {
            "cpu_share": round(min(1.0, cores / usable_cpus()), 4),
            "cpu_cores": round(cores, 3),
            "busiest": round(self._busiest / self._seconds, 4),
            "disk_share": round(self._waiting / self._samples, 4),
        }

    def _read_processes(self) -> "Dict[int, Tuple[float, float, str, int]]":
        processes: Dict[int, Tuple[float, float, str, int]] = {}
        pending = list(self._roots())
        while pending and len(processes) < _MAX_PROCESSES:
            pid = pending.pop()
            stat = self._stat(pid) if pid not in processes else None
            if stat is not None:
                processes[pid] = stat
                pending += self._children(pid)
        return processes

    def _stat(self, pid: int) -> "Optional[Tuple[float, float, str, int]]":
        """Return CPU seconds of a process and its reaped children, its state, and its resident bytes."""
        try:
            with open("%s/%d/stat" % (self._proc, pid), "rb") as file:
                text = file.read()
        except OSError:
            return None
        fields = text[text.rindex(b")") + 2 :].split()
        own_time, child_time = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        resident = int(fields[21]) * _PAGE if len(fields) > 21 else 0
        return own_time / _TICKS, child_time / _TICKS, fields[0].decode("ascii", "replace"), resident

    def _children(self, pid: int) -> List[int]:
        folder = "%s/%d/task" % (self._proc, pid)
        pids: List[int] = []
        try:
            for thread in os.listdir(folder):
                with open("%s/%s/children" % (folder, thread), "rb") as file:
                    pids += [int(pid_text) for pid_text in file.read().split()]
        except OSError:
            pass  # the process has just ended, or the kernel does not provide the file
        return pids


def usable_cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
