"""Windows implementation using the C API and taskkill, written from the documentation. **Untested**."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

    Process = Tuple[int, int]


_PROCESS_QUERY = 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
_STILL_ACTIVE = 259
CAN_FORK = False
DETACHED = 0x00000008 | 0x00000200 | 0x01000000  # detached, in its own process group, outside the caller's job


def _kernel32() -> Any:
    return getattr(ctypes, "windll").kernel32


def identity() -> Dict[str, str]:
    """Return the IDs of the machine and the current boot."""
    boot = int((time.time() - _kernel32().GetTickCount64() / 1000.0) / 10)
    return {"machine": os.environ.get("COMPUTERNAME", ""), "boot_id": str(boot), "processes": ""}


def start_time(pid: int) -> Optional[int]:
    """Return the start time of a process in units of 100 ns since 1601, or None if it is dead."""
    kernel = _kernel32()
    handle = kernel.OpenProcess(_PROCESS_QUERY, False, pid)
    if not handle:
        return None
    try:
        code = ctypes.c_ulong()
        times = [ctypes.c_ulonglong() for _ in range(4)]
        if not kernel.GetExitCodeProcess(handle, ctypes.byref(code)) or code.value != _STILL_ACTIVE:
            return None
        if not kernel.GetProcessTimes(handle, *[ctypes.byref(value) for value in times]):
            return None
        return times[0].value
    finally:
        kernel.CloseHandle(handle)


def find_processes(folder: str, roots: List[int], sessions: List[int]) -> List[Process]:
    """Return the roots of the run's process trees. ``taskkill`` ends their descendants."""
    return [(pid, start) for pid in sessions for start in [start_time(pid)] if start is not None]


def kill(pid: int, number: int) -> None:
    """End a process tree forcibly: Windows cannot ask a process without a window to end."""
    subprocess.run(["taskkill", "/T", "/F", "/PID", str(pid)], capture_output=True, check=False)


def fork(body: Callable[[], None], keep: Iterable[int] = ()) -> int:
    """Raise OSError: Windows has no fork. Callers check CAN_FORK first."""
    raise OSError("Windows has no fork")


def lock(path: str) -> Optional[int]:
    """Return a descriptor that holds the lock until it is closed, or None if the lock is taken.

    The lock is also released if the process dies.
    """
    import msvcrt  # noqa: PLC0415 - exists on Windows only

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        getattr(msvcrt, "locking")(descriptor, getattr(msvcrt, "LK_NBLCK"), 1)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def lock_shared(path: str) -> Optional[int]:
    """Return a descriptor without a lock: the C API has no shared locks.

    Removals also check for active runs.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def is_locked(path: str) -> bool:
    """Return whether a process holds the lock."""
    descriptor = lock(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def sync_folder(path: str) -> None:
    """Do nothing: Windows cannot sync a folder, and its journal already contains the rename."""


def become_reaper() -> None:
    """Do nothing: Windows has no orphans to adopt."""


def oom_kills() -> Optional[int]:
    """Return None: Windows does not kill processes for lack of memory."""
    return None


def make_waiter(pid: Optional[int]) -> Callable[[float], bool]:
    """Return a function that sleeps for at most 0.25 seconds and returns True.

    The sleep does not end early when a process ends.
    """

    def wait(seconds: float) -> bool:
        time.sleep(min(seconds, 0.25))
        return True

    return wait
