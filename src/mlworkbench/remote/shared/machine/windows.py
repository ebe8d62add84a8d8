"""Windows, through its C interface and taskkill. Written to the documentation; **untested**."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

    Process = Tuple[int, int]


_QUERY = 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
_STILL_ACTIVE = 259
FORKS = False
DETACHED = 0x00000008 | 0x00000200 | 0x01000000  # detached, own group, out of the caller's job


def _kernel() -> Any:
    return getattr(ctypes, "windll").kernel32


def identity() -> Dict[str, str]:
    """Which machine and which boot of it."""
    boot = int((time.time() - _kernel().GetTickCount64() / 1000.0) / 10)
    return {"machine": os.environ.get("COMPUTERNAME", ""), "boot_id": str(boot), "processes": ""}


def start_time(pid: int) -> Optional[int]:
    """When the process began, in 100 ns since 1601; None if it is dead."""
    kernel = _kernel()
    handle = kernel.OpenProcess(_QUERY, False, pid)
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


def family(folder: str, roots: List[int], sessions: List[int]) -> List[Process]:
    """The heads of the run's process trees; taskkill takes all below them."""
    return [(pid, start) for pid in sessions for start in [start_time(pid)] if start is not None]


def kill(pid: int, number: int) -> None:
    """Windows has no signal that asks a process without a window to end: its tree is ended."""
    subprocess.run(["taskkill", "/T", "/F", "/PID", str(pid)], capture_output=True, check=False)


def fork(body: Callable[[], None], keep: Iterable[int] = ()) -> int:
    """There is no fork: callers ask FORKS first."""
    raise OSError("Windows has no fork")


def lock(path: str) -> Optional[int]:
    """A descriptor that holds the lock until it is closed or its process dies; None if another holds it."""
    import msvcrt  # noqa: PLC0415 - exists on Windows only

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        getattr(msvcrt, "locking")(descriptor, getattr(msvcrt, "LK_NBLCK"), 1)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def share(path: str) -> Optional[int]:
    """Windows' C interface has no shared lock: nobody is kept out. Who removes also asks which runs are going on."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def is_locked(path: str) -> bool:
    """Whether a process holds the lock."""
    held = lock(path)
    if held is None:
        return True
    os.close(held)
    return False


def sync_folder(path: str) -> None:
    """Windows cannot sync a folder; a rename is in its journal already."""


def become_reaper() -> None:
    """Windows has no orphans to adopt."""


def oom_kills() -> Optional[int]:
    """Windows does not kill for want of memory."""
    return None


def waiter(pid: Optional[int]) -> Callable[[float], bool]:
    """A function that sleeps for a short while; nothing wakes it."""

    def wait(seconds: float) -> bool:
        time.sleep(min(seconds, 0.25))
        return True

    return wait
