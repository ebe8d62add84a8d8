"""Functions that Linux and macOS share: fork, locks, and signals."""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from ..file_lock import try_lock

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Optional, Tuple

    Process = Tuple[int, int]  # PID and start time, to detect PID reuse

CAN_FORK = True
DETACHED = 0


def fork(body: Callable[[], None], keep: Iterable[int] = ()) -> int:
    """Run ``body`` in a new process and session, which outlive this process. Return the PID."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        _close_all_but(set(keep) | {0, 1, 2})
        body()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 70
    except BaseException:
        sys.excepthook(*sys.exc_info())  # stderr is supervisor.log
        raise
    finally:
        os._exit(code)


def _close_all_but(keep: "set[int]") -> None:
    # An inherited lock or pipe would stay open for the lifetime of the new process.
    low = 3
    for descriptor in sorted(keep):
        if descriptor >= low:
            os.closerange(low, descriptor)
            low = descriptor + 1
    os.closerange(low, 1024)


def lock(path: str) -> Optional[int]:
    """Return a descriptor that holds the lock until it is closed, or None if the lock is taken.

    The lock is also released if the process dies.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(20):  # ``is_locked`` also holds the lock, for microseconds
        if try_lock(descriptor):
            return descriptor
        time.sleep(0.002)
    os.close(descriptor)
    return None


def lock_shared(path: str) -> Optional[int]:
    """Return a descriptor that holds a shared lock, or None if the lock is held exclusively."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(descriptor, shared=True):
        return descriptor
    os.close(descriptor)
    return None


def is_locked(path: str) -> bool:
    """Return whether a process holds the lock. Concurrent checks do not interfere with each other."""
    try:
        # O_NONBLOCK: a script may have created a FIFO there.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # the process has ended, or belongs to another user (sudo)


def sync_folder(path: str) -> None:
    """Make renames in a folder survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def become_reaper() -> None:
    """Do nothing: only Linux can adopt orphans.

    Elsewhere, they are found by the run's environment variable.
    """


def make_waiter(pid: Optional[int]) -> Callable[[float], bool]:
    """Return a function that sleeps until a child ends or until a timeout.

    The function returns whether a child ended.
    """
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for descriptor in (read, write):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select([read], [], [], seconds)
        if ready:
            os.read(read, 4096)
        return bool(ready)

    return wait


def descendants(parents: Dict[int, int], roots: Iterable[int], stop: Callable[[int], bool]) -> List[int]:
    """Return all PIDs below ``roots`` in a table that maps each PID to its parent.

    A PID for which ``stop`` returns true is skipped, together with its descendants.
    """
    children: Dict[int, List[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    result: List[int] = []
    pending = [child for root in roots for child in children.get(root, [])]
    while pending:
        pid = pending.pop()
        if pid in result or stop(pid):
            continue
        result.append(pid)
        pending.extend(children.get(pid, []))
    return result
