"""macOS, through ps and sysctl. Written to the documentation; **untested**."""

from __future__ import annotations

import os
import socket
import subprocess
import zlib

from .posix import descendants

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from .posix import Process


def _ask(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def identity() -> Dict[str, str]:
    """Which machine and which boot of it."""
    return {
        "machine": _ask("/usr/sbin/sysctl", "-n", "kern.uuid").strip() or socket.gethostname(),
        "boot_id": _ask("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid").strip(),
        "processes": "",
    }


def _number(text: str) -> int:
    """A start time as ps prints it, as a number: only its equality is ever asked."""
    return zlib.crc32(text.encode("utf-8", "replace"))


def start_time(pid: int) -> Optional[int]:
    """A number that stands for the moment the process began; None if it is dead."""
    words = _ask("/bin/ps", "-o", "state=,lstart=", "-p", str(pid)).split(None, 1)
    if len(words) < 2 or words[0].startswith("Z"):
        return None
    return _number(words[1].strip())


def family(folder: str, roots: List[int], sessions: List[int]) -> List[Process]:
    """All living processes of a run: below ``roots``, in the process groups, or with the run's mark."""
    mark = "MLW_RUN_FOLDER=" + folder
    parents: Dict[int, int] = {}
    starts: Dict[int, int] = {}
    found: Dict[int, int] = {}
    foreign = {os.getpid()}
    for line in _ask("/bin/ps", "-axEwwo", "pid=,ppid=,pgid=,state=,lstart=,command=").splitlines():
        words = line.split(None, 9)
        if len(words) < 10 or words[3].startswith("Z"):
            continue
        pid = int(words[0])
        parents[pid], starts[pid] = int(words[1]), _number(" ".join(words[4:9]))
        environment = words[9].split()
        if "MLW_SUPERVISOR=1" in environment:
            foreign.add(pid)
        elif mark in environment or int(words[2]) in sessions:
            found[pid] = starts[pid]
    for pid in descendants(parents, roots, foreign.__contains__):
        found[pid] = starts[pid]
    for pid in list(roots) + list(foreign):
        found.pop(pid, None)
    return sorted(found.items())


def oom_kills() -> Optional[int]:
    """macOS does not count them."""
    return None
