"""What Linux and macOS share: fork, locks, signals."""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from ..file_lock import try_lock

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Optional, Tuple

    Process = Tuple[int, int]  # pid and start time: together safe against reuse of the number

FORKS = True
DETACHED = 0


def fork(body: Callable[[], None], keep: Iterable[int] = ()) -> int:
    """Run ``body`` in a new session that outlives this process; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        _close_all_but(set(keep) | {0, 1, 2})
        body()
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 70
    except BaseException:
        sys.excepthook(*sys.exc_info())  # into supervisor.log, which is our stderr
        raise
    finally:
        os._exit(code)


def _close_all_but(keep: "set[int]") -> None:
    # An inherited lock or pipe would look held for as long as the new process lives.
    low = 3
    for descriptor in sorted(keep):
        if descriptor >= low:
            os.closerange(low, descriptor)
            low = descriptor + 1
    os.closerange(low, 1024)


def lock(path: str) -> Optional[int]:
    """A descriptor that holds the lock until it is closed or its process dies; None if another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(20):  # a look (below) holds it too, for microseconds
        if try_lock(descriptor):
            return descriptor
        time.sleep(0.002)
    os.close(descriptor)
    return None


def share(path: str) -> Optional[int]:
    """Like ``lock``, for any number of holders at once; None while one holds it alone."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(descriptor, shared=True):
        return descriptor
    os.close(descriptor)
    return None


def is_locked(path: str) -> bool:
    """Whether a process holds the lock. Many may look at once without taking each other for the holder."""
    try:
        # O_NONBLOCK: a script may have put a FIFO there.
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
        pass  # gone, or another user's (sudo): the others must get theirs all the same


def sync_folder(path: str) -> None:
    """Make a rename in ``path`` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def become_reaper() -> None:
    """Only Linux can adopt orphans; elsewhere they are found by the run's mark in their environment."""


def waiter(pid: Optional[int]) -> Callable[[float], bool]:
    """A function that sleeps until a child of ours ends, or the time is over; tells whether something ended."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for end in (read, write):
        os.set_inheritable(end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select([read], [], [], seconds)
        if ready:
            os.read(read, 4096)
        return bool(ready)

    return wait


def descendants(parents: Dict[int, int], roots: Iterable[int], stop: Callable[[int], bool]) -> List[int]:
    """All pids below ``roots`` in a table pid → parent; does not look below a pid for which ``stop`` is true."""
    children: Dict[int, List[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: List[int] = []
    waiting = [child for root in roots for child in children.get(root, [])]
    while waiting:
        pid = waiting.pop()
        if pid in found or stop(pid):
            continue
        found.append(pid)
        waiting.extend(children.get(pid, []))
    return found
