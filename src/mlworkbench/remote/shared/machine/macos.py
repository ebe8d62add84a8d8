"""macOS implementation using ps and sysctl, written from the documentation. **Untested**."""

from __future__ import annotations

import os
import socket
import subprocess
import zlib

from .posix import descendants

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from .posix import Process


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def identity() -> Dict[str, str]:
    """Return the IDs of the machine and the current boot."""
    return {
        "machine": _run("/usr/sbin/sysctl", "-n", "kern.uuid").strip() or socket.gethostname(),
        "boot_id": _run("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid").strip(),
        "processes": "",
    }


def _hash_time(text: str) -> int:
    """Convert a start time printed by ps to a number, which is only compared for equality."""
    return zlib.crc32(text.encode("utf-8", "replace"))


def start_time(pid: int) -> Optional[int]:
    """Return a number that identifies the start time of a process, or None if it is dead."""
    fields = _run("/bin/ps", "-o", "state=,lstart=", "-p", str(pid)).split(None, 1)
    if len(fields) < 2 or fields[0].startswith("Z"):
        return None
    return _hash_time(fields[1].strip())


def find_processes(folder: str, roots: List[int], sessions: List[int]) -> List[Process]:
    """Return all living processes of a run.

    These are below ``roots``, in the process groups ``sessions``, or have the run's environment variable.
    """
    marker = "MLW_RUN_FOLDER=" + folder
    parents: Dict[int, int] = {}
    starts: Dict[int, int] = {}
    processes: Dict[int, int] = {}
    foreign = {os.getpid()}
    for line in _run("/bin/ps", "-axEwwo", "pid=,ppid=,pgid=,state=,lstart=,command=").splitlines():
        fields = line.split(None, 9)
        if len(fields) < 10 or fields[3].startswith("Z"):
            continue
        pid = int(fields[0])
        parents[pid], starts[pid] = int(fields[1]), _hash_time(" ".join(fields[4:9]))
        environment = fields[9].split()
        if "MLW_SUPERVISOR=1" in environment:
            foreign.add(pid)
        elif marker in environment or int(fields[2]) in sessions:
            processes[pid] = starts[pid]
    for pid in descendants(parents, roots, foreign.__contains__):
        processes[pid] = starts[pid]
    for pid in list(roots) + list(foreign):
        processes.pop(pid, None)
    return sorted(processes.items())


def oom_kills() -> Optional[int]:
    """Return None: macOS does not count OOM kills."""
    return None
