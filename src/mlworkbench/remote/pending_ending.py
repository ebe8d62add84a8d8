"""Retry recording an ending while writes fail, and report the problem meanwhile."""

from __future__ import annotations

import errno
import os
import time

from .journal import log
from .run_lock import lock_holder
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Callable

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two attempts
ABSENT_TIMEOUT = 24 * 3600.0  # seconds to wait for a missing folder, which may be mounted again
WAITING_NAME = "mlw-pending"  # process name while waiting, because no message can be stored on disk
_OWN_NAME_FILE = "/proc/self/comm"
_DISK_PROBLEMS = {errno.ENOSPC: "is full", errno.EDQUOT: "has no quota left", errno.EROFS: "is read-only"}


def retry_until_written(
    run: RunFolder,
    write: Callable[[], object],
    what: str,
    waiting: Callable[[], None] = lambda: None,
    is_hopeless: Callable[[OSError], bool] = lambda error: False,
) -> bool:
    """Call ``write`` until it succeeds. Return False if the run folder was deleted.

    ``waiting`` is called before each pause. Errors for which ``is_hopeless`` returns true are raised.
    """
    pause, last_error, absent_deadline, original_name = FIRST_PAUSE, "", time.monotonic() + ABSENT_TIMEOUT, ""
    while True:
        try:
            write()
            if original_name:
                _process_name(_OWN_NAME_FILE, original_name)
            return True
        except OSError as error:
            if is_hopeless(error):
                raise
            if is_deleted(run) or (isinstance(error, FileNotFoundError) and time.monotonic() > absent_deadline):
                log("%s was not written: the run folder was deleted" % what)
                return False
            if str(error.errno) != last_error:
                last_error = str(error.errno)
                log("cannot write %s, retrying: %s" % (what, error))
        waiting()
        original_name = original_name or _process_name(_OWN_NAME_FILE, WAITING_NAME)
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def is_deleted(run: RunFolder) -> bool:
    """Return whether the run folder was deleted.

    If its parent folder is missing, too, the disk may just not be mounted.
    """
    try:
        os.lstat(run.path)
    except FileNotFoundError:
        return os.path.isdir(os.path.dirname(run.path))
    except OSError:
        return False
    return False


def unwritten_reason(run: RunFolder) -> str:
    """Return why the ending of a run cannot be written, or "" if nothing is pending."""
    processes = [lock_holder(run.lock), lock_holder(run.watcher_lock)]
    if not any(process and _process_name("/proc/%d/comm" % process[0]) == WAITING_NAME for process in processes):
        return ""
    try:
        probe_write(run)
    except OSError as error:
        if error.errno in _DISK_PROBLEMS:
            return "the file system of %s %s" % (run.path, _DISK_PROBLEMS[error.errno])
        return "%s: %s" % (error.strerror, run.path)
    return "the disk that holds %s recently refused a write" % run.path


def _process_name(path: str, new: str = "") -> str:
    """Return the name of a process as ``ps`` shows it, or "". Set the name to ``new`` if given."""
    try:
        with open(path, "r+" if new else "r") as file:
            name = file.read().strip()
            if new:
                file.write(new)
            return name
    except (OSError, ValueError):
        return ""


def probe_write(run: RunFolder) -> None:
    """Write a small file, and raise OSError if that fails.

    Free space and mount options are not sufficient: they do not reveal quotas, for example.
    """
    path = os.path.join(run.path, ".probe-%s" % os.urandom(8).hex())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if os.write(descriptor, b"-" * 4096) < 4096:
            raise OSError(errno.ENOSPC, "No space left on device")
    finally:
        os.close(descriptor)
        os.unlink(path)
