"""Linux implementation, based on /proc."""

from __future__ import annotations

import os
import select
import signal

from .posix import descendants

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from .posix import Process

_PR_SET_CHILD_SUBREAPER = 36
_EXITING = 0x4  # PF_EXITING in the kernel's flags of a process


def _read(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def identity() -> Dict[str, str]:
    """Return the machine, boot, and PID namespace IDs. A PID is meaningful only with all three."""
    machine = (_read("/etc/machine-id") or b"").strip().decode("ascii", "replace")
    boot = (_read("/proc/sys/kernel/random/boot_id") or b"").strip().decode("ascii", "replace")
    try:
        table = os.readlink("/proc/self/ns/pid")
    except OSError:
        table = ""
    return {"machine": machine or os.uname().nodename, "boot_id": boot, "processes": table}


def _stat(pid: int) -> Optional[Tuple[int, int, int, bool]]:
    """Return the parent, session, and start time of a living process, and whether it is exiting."""
    data = _read("/proc/%d/stat" % pid)
    return parse_stat(data) if data else None


def parse_stat(data: bytes) -> Optional[Tuple[int, int, int, bool]]:
    # The name in parentheses may contain any characters, including ") ".
    fields = data[data.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), int(fields[3]), int(fields[19]), bool(int(fields[6]) & _EXITING)


def start_time(pid: int) -> Optional[int]:
    """Return the start time of a process in ticks since boot, or None if it is dead."""
    stat = _stat(pid)
    return stat[2] if stat else None


def find_processes(folder: str, roots: List[int], sessions: List[int]) -> List[Process]:
    """Return all living processes of a run.

    These are below ``roots``, in ``sessions``, or have the run's environment variable. This process,
    supervisors of other runs, and their descendants are excluded. So are processes that are exiting: they execute
    nothing any more, and the kernel has removed their variables.
    """
    marker = b"MLW_RUN_FOLDER=" + os.fsencode(folder)
    parents: Dict[int, int] = {}
    processes: Dict[int, int] = {}
    starts: Dict[int, int] = {}
    foreign = {os.getpid()}
    exiting: List[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        pid = int(name)
        # Before the state, so that a process that exits meanwhile does not count as one without variables.
        environment = (_read("/proc/%d/environ" % pid) or b"").split(b"\0")
        stat = _stat(pid)
        if stat is None:
            continue
        parents[pid], starts[pid] = stat[0], stat[2]
        if stat[3]:
            exiting.append(pid)
        elif b"MLW_SUPERVISOR=1" in environment:
            foreign.add(pid)
        elif marker in environment or stat[1] in sessions:
            processes[pid] = stat[2]
    for pid in descendants(parents, roots, foreign.__contains__):
        processes[pid] = starts[pid]
    for pid in [*roots, *foreign, *exiting]:
        processes.pop(pid, None)
    return sorted(processes.items())


def become_reaper() -> None:
    """Adopt orphaned descendants as children, so that this process can find and reap them."""
    import ctypes  # noqa: PLC0415 - the client also imports this module but does not need it

    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return  # no prctl in the C library: the variable still identifies orphans


def oom_kills() -> Optional[int]:
    """Return how many processes the kernel has killed for lack of memory since boot."""
    for line in (_read("/proc/vmstat") or b"").splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return None


def make_waiter(pid: Optional[int]) -> Callable[[float], bool]:
    """Return a function that sleeps until a child or ``pid`` ends, or until a timeout.

    The function returns whether a process ended.
    """
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
            pass  # already dead, or a kernel before 5.3: the caller checks again after the timeout

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select(watched, [], [], seconds)
        if read in ready:
            os.read(read, 4096)
        for descriptor in ready:
            if descriptor != read:  # would stay readable, because the process has ended
                watched.remove(descriptor)
                os.close(descriptor)
        return bool(ready)

    return wait
