"""Linux: everything is read from /proc."""

from __future__ import annotations

import os
import select
import signal

from .posix import descendants

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from .posix import Process

_PR_SET_CHILD_SUBREAPER = 36


def _read(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def identity() -> Dict[str, str]:
    """Which machine, which boot of it, which process table: without all three a pid means nothing."""
    machine = (_read("/etc/machine-id") or b"").strip().decode("ascii", "replace")
    boot = (_read("/proc/sys/kernel/random/boot_id") or b"").strip().decode("ascii", "replace")
    try:
        table = os.readlink("/proc/self/ns/pid")
    except OSError:
        table = ""
    return {"machine": machine or os.uname().nodename, "boot_id": boot, "processes": table}


def _stat(pid: int) -> Optional[Tuple[int, int, int]]:
    """Parent, session and start time of a living process."""
    text = _read("/proc/%d/stat" % pid)
    if not text:
        return None
    # The name in parentheses may hold anything, also ") ".
    fields = text[text.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), int(fields[3]), int(fields[19])


def start_time(pid: int) -> Optional[int]:
    """When the process began, in ticks since boot; None if it is dead."""
    stat = _stat(pid)
    return stat[2] if stat else None


def family(folder: str, roots: List[int], sessions: List[int]) -> List[Process]:
    """All living processes of a run: below ``roots``, in ``sessions``, or with the run's mark in their environment.

    Supervisors of other runs and this process do not count, nor does anything below them.
    """
    mark = b"MLW_RUN_FOLDER=" + os.fsencode(folder)
    parents: Dict[int, int] = {}
    found: Dict[int, int] = {}
    starts: Dict[int, int] = {}
    foreign = {os.getpid()}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        pid = int(name)
        stat = _stat(pid)
        if stat is None:
            continue
        parents[pid], starts[pid] = stat[0], stat[2]
        environment = (_read("/proc/%d/environ" % pid) or b"").split(b"\0")
        if b"MLW_SUPERVISOR=1" in environment:
            foreign.add(pid)
        elif mark in environment or stat[1] in sessions:
            found[pid] = stat[2]
    for pid in descendants(parents, roots, foreign.__contains__):
        found[pid] = starts[pid]
    for pid in list(roots) + list(foreign):
        found.pop(pid, None)
    return sorted(found.items())


def become_reaper() -> None:
    """Orphans below us become our children: we can find them, and learn how they ended."""
    import ctypes  # noqa: PLC0415 - the client, which imports this module too, has no use for it

    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return  # a C library without prctl: orphans are still found by their mark


def oom_kills() -> Optional[int]:
    """How many processes the kernel has killed for want of memory since boot."""
    for line in (_read("/proc/vmstat") or b"").splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return None


def waiter(pid: Optional[int]) -> Callable[[float], bool]:
    """A function that sleeps until a child of ours ends, ``pid`` ends, or the time is over; tells which."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    watched = [read]
    if pid is not None and hasattr(os, "pidfd_open"):
        try:
            watched.append(os.pidfd_open(pid))
        except OSError:
            pass  # dead already, or a kernel before 5.3: the caller looks again after the time is over

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select(watched, [], [], seconds)
        if read in ready:
            os.read(read, 4096)
        for other in ready:
            if other != read:  # stays readable for ever once the process is dead
                watched.remove(other)
                os.close(other)
        return bool(ready)

    return wait
