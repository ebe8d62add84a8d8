"""Find processes that a test left running, by a folder in their environment or command line. Linux only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Return whether the process is running. Zombies do not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def variables(pid: int) -> list[bytes]:
    """Return the environment variables of a process as ``NAME=value``; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def run_processes(folder: Path) -> list[int]:
    """Return the process IDs of the run in this folder, including those that left its process group."""
    mark = f"MLW_RUN_FOLDER={folder}".encode()
    return [pid for pid in _pids() if is_alive(pid) and mark in variables(pid)]


def end_processes(folder: Path) -> None:
    """Kill every process whose environment or command line contains the folder."""
    mark = os.fsencode(folder)
    for pid in _pids():
        entry = Path(f"/proc/{pid}")
        try:
            if mark in (entry / "environ").read_bytes() or mark in (entry / "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def _pids() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            yield int(entry.name)
