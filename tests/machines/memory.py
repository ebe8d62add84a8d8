"""Temporary files in memory: disk file systems take a fifth of the CPU time of the whole suite.

Only for sessions with a separate mount namespace (`python -m tests` as root) and enough memory. The kernel frees
the memory with the namespace. `MLW_TESTS_ON_DISK=1` keeps the files on disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.machines.programs import call

IN_MEMORY = "MLW_TESTS_IN_MEMORY"  # set for the test processes of a session with files in memory
_ON_DISK = "MLW_TESTS_ON_DISK"
_ENOUGH = 16 * 1024**3  # bytes available; a session has used 11 GB


def is_enough() -> bool:
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return not os.environ.get(_ON_DISK) and available >= _ENOUGH


def mount_memory(folder: Path) -> None:
    call("mount", "-t", "tmpfs", "-o", "mode=755,size=50%", "tmpfs", str(folder))
