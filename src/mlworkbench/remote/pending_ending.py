"""The ending of a run whose disk refuses writes: written again and again until it is there, and shown meanwhile."""

from __future__ import annotations

import errno
import os
import time

from .journal import log
from .run_lock import holder
from .shared.layout import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Callable

FIRST, LONGEST = 0.05, 5.0  # seconds between two attempts
ABSENT = 24 * 3600.0  # seconds that a folder which is not there at all is waited for: it may be mounted again
WAITING = "mlw-pending"  # name of a process while it waits: nothing that is written would reach anybody
_OWN = "/proc/self/comm"
_WORDS = {errno.ENOSPC: "is full", errno.EDQUOT: "has no quota left", errno.EROFS: "is read-only"}


def until_written(
    run: RunFolder,
    write: Callable[[], object],
    what: str,
    waiting: Callable[[], None] = lambda: None,
    hopeless: Callable[[OSError], bool] = lambda error: False,
) -> bool:
    """Repeat ``write`` until it succeeds; False if the run folder was deleted, so that it never will.

    ``waiting`` is called before each pause. An error that is ``hopeless`` is raised.
    """
    pause, complaint, absent, name = FIRST, "", time.monotonic() + ABSENT, ""
    while True:
        try:
            write()
            if name:
                _name(_OWN, name)
            return True
        except OSError as error:
            if hopeless(error):
                raise
            if is_deleted(run) or (isinstance(error, FileNotFoundError) and time.monotonic() > absent):
                log("%s was not written: the run folder was deleted" % what)
                return False
            if str(error.errno) != complaint:
                complaint = str(error.errno)
                log("cannot write %s, retrying: %s" % (what, error))
        waiting()
        name = name or _name(_OWN, WAITING)
        time.sleep(pause)
        pause = min(LONGEST, pause * 2)


def is_deleted(run: RunFolder) -> bool:
    """Whether the run folder is gone for good. Without the folder around it, its disk may just not be mounted."""
    try:
        os.lstat(run.path)
    except FileNotFoundError:
        return os.path.isdir(os.path.dirname(run.path))
    except OSError:
        return False
    return False


def why_unwritten(run: RunFolder) -> str:
    """Why the ending of a run cannot be written; empty if nothing waits to be written."""
    processes = [holder(run.lock), holder(run.watch)]
    if not any(process and _name("/proc/%d/comm" % process[0]) == WAITING for process in processes):
        return ""
    try:
        probe(run)
    except OSError as error:
        if error.errno in _WORDS:
            return "the file system of %s %s" % (run.path, _WORDS[error.errno])
        return "%s: %s" % (error.strerror, run.path)
    return "the disk that holds %s recently refused a write" % run.path


def _name(path: str, new: str = "") -> str:
    """The name of a process, as ps shows it; ``new`` changes it. Empty where there is no such thing."""
    try:
        with open(path, "r+" if new else "r") as file:
            name = file.read().strip()
            if new:
                file.write(new)
            return name
    except (OSError, ValueError):
        return ""


def probe(run: RunFolder) -> None:
    """Raise the OSError that a small write gives. Free space and mount options do not tell of quotas, for example."""
    path = os.path.join(run.path, ".probe-%s" % os.urandom(8).hex())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if os.write(descriptor, b"-" * 4096) < 4096:
            raise OSError(errno.ENOSPC, "No space left on device")
    finally:
        os.close(descriptor)
        os.unlink(path)
