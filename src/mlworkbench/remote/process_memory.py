"""Memory usage of several processes, with shared pages counted only once."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

# Maximum resident bytes for which PSS is read. The kernel visits each page to compute it, which may delay the run.
_MAX_RESIDENT = 8 << 30
_MAX_SECONDS = 0.05  # maximum time to read the files of all processes
_CGROUP_ROOT = "/sys/fs/cgroup"


class MemoryUsage:
    """Memory usage of one run. A method that was slow or not permitted is not tried again."""

    def __init__(self, proc: str = "/proc", cgroup_root: str = _CGROUP_ROOT) -> None:
        self._proc = proc
        self._cgroup_root = cgroup_root
        self._use_pss = True

    def measure(self, pids: List[int], resident: int) -> Tuple[int, Optional[str]]:
        """Return the memory usage in bytes, and the method, which is None for a single process.

        ``resident`` is the sum of the resident bytes of all processes.
        """
        if len(pids) < 2:
            return resident, None
        if self._use_pss and resident <= _MAX_RESIDENT:
            started_at = time.monotonic()
            pss = self._sum_pss(pids)
            self._use_pss = pss is not None and time.monotonic() - started_at < _MAX_SECONDS
            if pss is not None:
                return pss, "pss"
        group_bytes = self._cgroup_bytes(pids[0])
        return (resident, "rss") if group_bytes is None else (group_bytes, "cgroup")

    def _sum_pss(self, pids: List[int]) -> Optional[int]:
        """Return the sum of PSS, which divides shared pages among processes; None if not available."""
        total = 0
        for pid in pids:
            try:
                with open("%s/%d/smaps_rollup" % (self._proc, pid), "rb") as file:
                    text = file.read(4096)
            except (FileNotFoundError, ProcessLookupError):
                if os.path.exists("%s/%d" % (self._proc, pid)):
                    return None  # a kernel before 4.14
                continue  # the process has just ended
            except OSError:
                return None
            total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(b"Pss:"))
        return total or None

    def _cgroup_bytes(self, pid: int) -> Optional[int]:
        """Return the usage of the run's own cgroup, such as a container's; None if it has none.

        The cgroup of this process would include other runs.
        """
        group, own_group = self._memory_cgroup(str(pid)), self._memory_cgroup("self")
        if group is None or group == own_group or group[1] == "/":
            return None
        kind, path = group
        folder = self._cgroup_root + kind + os.path.normpath(path)
        names = ("memory.usage_in_bytes", b"total_inactive_file") if kind else ("memory.current", b"inactive_file")
        try:
            with open("%s/%s" % (folder, names[0]), "rb") as file:
                used = int(file.read())
            with open("%s/memory.stat" % folder, "rb") as file:
                statistics = dict(line.split(b" ", 1) for line in file.read(1 << 16).splitlines())
            return max(0, used - int(statistics.get(names[1], b"0")))  # the kernel can drop inactive file pages
        except (OSError, ValueError):
            return None

    def _memory_cgroup(self, pid: str) -> Optional[Tuple[str, str]]:
        try:
            with open("%s/%s/cgroup" % (self._proc, pid), encoding="utf-8", errors="surrogateescape") as file:
                lines = [line.rstrip("\n").split(":", 2) for line in file]
        except OSError:
            return None
        groups = [
            ("/memory" if fields[1] else "", fields[2])
            for fields in lines
            if len(fields) == 3 and fields[1] in ("", "memory")
        ]
        return max(groups, default=None)  # if both cgroup versions are in use, version 1 has the memory controller
