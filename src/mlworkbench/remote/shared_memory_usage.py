"""Memory that several processes use together: what they share must not be counted for each of them."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

_LARGE = 8 << 30  # bytes; the kernel looks at each page to share it out, and the process may have to wait meanwhile
_SLOW = 0.05  # seconds
_GROUPS = "/sys/fs/cgroup"


class Memory:
    """Of one run. What was slow or not allowed once is not tried again."""

    def __init__(self, proc: str = "/proc", groups: str = _GROUPS) -> None:
        self._proc = proc
        self._groups = groups
        self._shares = True

    def look(self, pids: List[int], resident: int) -> Tuple[int, Optional[str]]:
        """Bytes, and how they were counted; one process is what it is. ``resident``: the sum over all of them."""
        if len(pids) < 2:
            return resident, None
        if self._shares and resident <= _LARGE:
            before = time.monotonic()
            found = self._shared_out(pids)
            self._shares = found is not None and time.monotonic() - before < _SLOW
            if found is not None:
                return found, "pss"
        group = self._group(pids[0])
        return (resident, "rss") if group is None else (group, "cgroup")

    def _shared_out(self, pids: List[int]) -> Optional[int]:
        """A page of n processes counts an nth for each; None if that is not told, or not to us."""
        whole = 0
        for pid in pids:
            try:
                with open("%s/%d/smaps_rollup" % (self._proc, pid), "rb") as file:
                    text = file.read(4096)
            except (FileNotFoundError, ProcessLookupError):
                if os.path.exists("%s/%d" % (self._proc, pid)):
                    return None  # a kernel before 4.14
                continue  # it has just ended
            except OSError:
                return None
            whole += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(b"Pss:"))
        return whole or None

    def _group(self, pid: int) -> Optional[int]:
        """Of the run's own control group, which a container has; ours would have other runs in it, too."""
        own, mine = self._place(str(pid)), self._place("self")
        if own is None or own == mine or own[1] == "/":
            return None
        kind, path = own
        folder = self._groups + kind + os.path.normpath(path)
        names = ("memory.usage_in_bytes", b"total_inactive_file") if kind else ("memory.current", b"inactive_file")
        try:
            with open("%s/%s" % (folder, names[0]), "rb") as file:
                used = int(file.read())
            with open("%s/memory.stat" % folder, "rb") as file:
                facts = dict(line.split(b" ", 1) for line in file.read(1 << 16).splitlines())
            return max(0, used - int(facts.get(names[1], b"0")))  # files that nobody needs would be given up
        except (OSError, ValueError):
            return None

    def _place(self, pid: str) -> Optional[Tuple[str, str]]:
        try:
            with open("%s/%s/cgroup" % (self._proc, pid), encoding="utf-8", errors="surrogateescape") as file:
                lines = [line.rstrip("\n").split(":", 2) for line in file]
        except OSError:
            return None
        found = [("/memory" if one[1] else "", one[2]) for one in lines if len(one) == 3 and one[1] in ("", "memory")]
        return max(found, default=None)  # where both kinds are in use, memory belongs to the older one
