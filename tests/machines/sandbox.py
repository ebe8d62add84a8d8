"""The sandbox of one pytest process: a unique number that determines its folders, names, and addresses.

A file lock holds the number, so it is free again however the process ends. A new owner first cleans up after a
killed predecessor: processes (identified by an environment variable or their control group), mounts, the interface,
folders.
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

BASE = Path("/var/tmp/mlw-machines")  # Not below /tmp: every machine has a separate /tmp.
MARK = "MLW_MACHINES_PLACE"
MAX_NUMBER = 60


class Sandbox:
    """Sandbox n: folder BASE/n, addresses 10.213.n.x (visible to the tests) and 10.214.n.x (behind a jump host)."""

    groups: ClassVar[list[str]] = []  # control groups of this process's sandboxes

    def __init__(self) -> None:
        clean_up_abandoned()
        self.number, self._lock = _acquire()
        clean_up(self.number)
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
        clean_up(self.number)
        _release(self.number, self._lock)


def clean_up_abandoned() -> None:
    """Clean up the sandboxes of killed sessions."""
    for number in range(MAX_NUMBER):
        lock = _lock(number) if (BASE / str(number)).exists() else None
        if lock is not None:
            clean_up(number)
            _release(number, lock)


def is_in_use(number: int) -> bool:
    """Return whether a session uses this number."""
    lock = _lock(number) if _lock_file(number).exists() else None
    if lock is not None:
        _release(number, lock)
    return lock is None and _lock_file(number).exists()


def _acquire() -> tuple[int, int]:
    """Return the first free number and its lock."""
    for number in range(MAX_NUMBER):
        lock = _lock(number)
        if lock is not None:
            return number, lock
    raise RuntimeError(f"all {MAX_NUMBER} places below {BASE} are in use")


def _lock_file(number: int) -> Path:
    return BASE / f"{number}.lock"


def _lock(number: int) -> int | None:
    """Return the lock of a number, or None if another process holds it."""
    while True:
        BASE.mkdir(mode=0o755, exist_ok=True)
        try:
            lock = os.open(_lock_file(number), os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # another session has just removed the folder
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:  # otherwise the previous owner has removed the file
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        os.close(lock)


def _release(number: int, lock: int) -> None:
    _lock_file(number).unlink()
    os.close(lock)
    with contextlib.suppress(OSError):  # not empty if there are other sandboxes
        BASE.rmdir()


def clean_up(number: int) -> None:
    """Remove all resources of the sandbox with this number. The caller must hold its lock."""
    folder = BASE / str(number)
    deadline = time.monotonic() + 20
    thaw_group(f"/{_group(number)}")
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
    """Remove a folder with its mounts; never delete through a remaining mount."""
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
    """Kill all processes in a control group and its subgroups, in every hierarchy."""
    deadline = time.monotonic() + 20
    while _kill(list(_in_groups(path))) and time.monotonic() < deadline:
        time.sleep(0.005)


def thaw_group(path: str) -> None:
    """Thaw frozen processes in a control group and its subgroups: until then, SIGKILL has no effect on them."""
    for group in _groups(path):
        with contextlib.suppress(OSError):  # not in the hierarchy that freezes, or gone
            (group / "freezer.state").write_text("THAWED")


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
