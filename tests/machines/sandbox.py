"""One pytest process's own place: a number that nobody else has now, and with it folders, names and addresses.

The number is held by a file lock, so it is free again however the process ended. Whoever takes a number first sweeps
what a killed predecessor left: processes (known by a variable in their environment, or by their control group),
mounts, the interface, folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from tests.machines.memory import IN_MEMORY, mount_memory
from tests.machines.programs import call

BASE = Path("/var/tmp/mlw-machines")  # Not below /tmp: every machine has a /tmp of its own.
MARK = "MLW_MACHINES_PLACE"
MOST = 60


class Place:
    """Number n: folder BASE/n, addresses 10.213.n.x (seen by the tests) and 10.214.n.x (behind a jump host)."""

    groups: ClassVar[list[str]] = []  # control groups of this process's places

    def __init__(self) -> None:
        sweep_abandoned()
        self.number, self._lock = _take()
        sweep(self.number)
        self.folder = BASE / str(self.number)
        self.folder.mkdir()
        if os.environ.get(IN_MEMORY):
            mount_memory(self.folder)
        self.interface = f"mlw{self.number}"
        self.cgroup = _group(self.number)
        self.groups.append(self.cgroup)
        self.marked = {MARK: str(self.folder)}

    def address(self, last: int, inner: bool = False) -> str:
        return f"10.{214 if inner else 213}.{self.number}.{last}"

    def close(self) -> None:
        sweep(self.number)
        _release(self.number, self._lock)


def sweep_abandoned() -> None:
    """Nothing stays of places whose session was killed."""
    for number in range(MOST):
        lock = _lock(number) if (BASE / str(number)).exists() else None
        if lock is not None:
            sweep(number)
            _release(number, lock)


def is_taken(number: int) -> bool:
    """Whether a session has it."""
    lock = _lock(number) if _lock_file(number).exists() else None
    if lock is not None:
        _release(number, lock)
    return lock is None and _lock_file(number).exists()


def _take() -> tuple[int, int]:
    """The first free number, and its lock."""
    for number in range(MOST):
        lock = _lock(number)
        if lock is not None:
            return number, lock
    raise RuntimeError(f"all {MOST} places below {BASE} are in use")


def _lock_file(number: int) -> Path:
    return BASE / f"{number}.lock"


def _lock(number: int) -> int | None:
    """The lock of a place, if nobody has it."""
    while True:
        BASE.mkdir(mode=0o755, exist_ok=True)
        try:
            lock = os.open(_lock_file(number), os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # another session has just removed the folder
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:  # else whoever had it has removed it since
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        os.close(lock)


def _release(number: int, lock: int) -> None:
    _lock_file(number).unlink()
    os.close(lock)
    with contextlib.suppress(OSError):  # other places are below it
        BASE.rmdir()


def sweep(number: int) -> None:
    """Nothing of that number stays. Only for whoever holds its lock."""
    folder = BASE / str(number)
    deadline = time.monotonic() + 20
    while _kill([*_marked(folder), *_in_groups(f"/{_group(number)}")]) and time.monotonic() < deadline:
        time.sleep(0.01)
    call("ip", "link", "delete", f"mlw{number}", check=False)
    remove_tree(folder)
    for group in sorted(_groups(f"/{_group(number)}"), reverse=True):
        try:
            group.rmdir()
        except OSError:
            continue


def remove_tree(folder: Path) -> None:
    """A folder with all that is mounted in it; nothing is deleted through a mount that stays."""
    for point in _mounts(folder):
        call("umount", "--lazy", point, check=False)
    if not _mounts(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _marked(folder: Path) -> Iterator[int]:
    mark = f"{MARK}={folder}\0".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue


def kill_group(path: str) -> None:
    """All processes in a control group and below it, in whatever hierarchy."""
    deadline = time.monotonic() + 20
    while _kill(list(_in_groups(path))) and time.monotonic() < deadline:
        time.sleep(0.005)


def _kill(pids: list[int]) -> bool:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return bool(pids)


def _group(number: int) -> str:
    return f"mlw-machines-{number}"


def _groups(path: str) -> list[Path]:
    base = Path("/sys/fs/cgroup")
    tops = [Path(f"{hierarchy}{path}") for hierarchy in (base, *base.glob("*/"))]
    return [Path(folder) for top in tops for folder, _, _ in os.walk(top)]


def _in_groups(path: str) -> Iterator[int]:
    for group in _groups(path):
        try:
            yield from (int(pid) for pid in (group / "cgroup.procs").read_text().split() if pid != "0")
        except OSError:
            continue


def _mounts(folder: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in reversed(points) if f"{point}/".startswith(f"{folder}/")]
