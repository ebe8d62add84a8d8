"""``log`` and ``flush``: one call appends one tuple to a buffer, a thread writes it soon after.

What ``_append`` is changes while the process lives, so that a call needs not ask:

    _first                 nothing was logged yet: starts the writer, then goes on as one of the others
    _first_after_fork      the thread was stopped for a fork: starts it again
    points.append          the usual one: the thread writes about every 0.4 s
    _append_checking_pid   the same, where Python does not tell us about a fork (before 3.7)
    _append_and_write      at once: after the last flush of the process, in pool workers (they are ended by
                           SIGTERM), and while the script outruns the writer
    _ignore                MLW_TRACKING=off, or outside a run where no local one can be made
"""

import atexit
import os
import sys
import threading
import time

from ._run import run
from ._values import plain_data, plain_key, plain_name, plain_step, plain_value
from ._writer import Writer

_NOTHING = object()
_POOLS = ("multiprocessing", "multiprocess", "billiard")  # the standard one and its copies in wide use
_FORK_IS_TOLD = hasattr(os, "register_at_fork") or not hasattr(os, "fork")
_now = time.time


def log(name, value=_NOTHING, step=None):
    """Log metrics: ``log("loss", 0.5)``, ``log("loss", 0.5, step=3)``, or ``log({"loss": 0.5, "acc": 0.9}, step=3)``.

    Logging the same name again adds a point to its series. Values can be numbers, strings, bools, None, numpy scalars
    and arrays, and lists of these. A full disk does not raise an error.
    """
    # In a training the caches are cold, and whatever is touched here costs most: literals instead of names.
    kind = type(value)
    if (
        (
            kind is float
            or kind is str
            or kind is bool
            or (kind is int and -0x8000000000000000 < value < 0x8000000000000000)
        )
        and type(name) is str
        and 0 < len(name) <= 2560
        and not name.isspace()
        and (step is None or (type(step) is int and -0x8000000000000000 < step < 0x8000000000000000))
    ):
        _append((name, value, _now(), step))
    elif value is _NOTHING:
        _log_many(name, step)
    elif step is None and isinstance(name, dict):
        _log_many(name, value)
    else:
        _append((plain_name(name), plain_value(value), _now(), plain_step(step)))


def _log_many(values, step):
    if not isinstance(values, dict):
        raise TypeError("log(name, value) needs a value, or a dict of values instead of a name")
    when, step = _now(), plain_step(step)
    # All are checked before the first is recorded: a refused call leaves nothing behind.
    points = [(plain_name(name), plain_value(value), when, step) for name, value in values.items()]
    for point in points:
        _append(point)


def point(name, value, when, step=None):
    """A point that was measured at another time than now."""
    _append((plain_key(name, "a metric's name"), plain_value(value), float(when), plain_step(step)))


def record(kind, data, when=None):
    """Something else than a metric, into the same file: parameters, tags, what files are. ``data`` is a dict."""
    told = plain_key(kind, "a record's kind"), plain_data(data)
    _append((None, told, _now() if when is None else float(when), None))


def flush():
    """Write everything logged so far to disk. Returns when the data is written, or when the disk rejects it."""
    writer = _writer
    if writer is not None and writer.pid == os.getpid():
        writer.flush()


# -- what an append does -----------------------------------------------------------------------------------


def _first(point):
    _start()
    _append(point)


def _first_after_fork(point):
    with _starting:
        if _append is _first_after_fork:
            _hold_back(not _writer.start_thread())
    _append(point)


def _ignore(point):
    pass


def _append_checking_pid(point):
    writer = _writer
    if writer is None or writer.pid != os.getpid():
        _after_fork_in_child()
        _append(point)
    else:
        writer.points.append(point)


def _append_and_write(point):
    _append_checking_pid(point)
    # While the disk refuses, it is asked now and then and not by every call.
    writer = _writer
    if writer is not None and time.monotonic() >= writer.retry_at:
        writer.flush()


def _hold_back(yes):
    global _append
    if not yes:
        _append = _writer.points.append if _FORK_IS_TOLD else _append_checking_pid
    # Asked after the change: _finish may have come in between from another thread.
    if yes or _writer.closed:
        _append = _append_and_write


_append = _first
_writer = None
_starting = threading.RLock()


# -- the life of a process ---------------------------------------------------------------------------------


def _start():
    global _append, _writer
    if run.folder is None:
        _append = _ignore
        return
    writer = Writer(run.folder, _hold_back)
    with _starting:
        if _append is not _first:  # another thread, or a signal handler in this one, was quicker
            return
        _writer, _append = writer, _append_and_write
    _flush_at_exit()
    if not _is_pool_worker() and writer.start_thread():
        _hold_back(False)


def _flush_at_exit():
    atexit.unregister(_finish)
    atexit.register(_finish)
    # Children of multiprocessing leave through os._exit, without atexit; what they do run is this list.
    for pool in _POOLS:
        util = sys.modules.get(pool + ".util")
        if util is not None:
            util.Finalize(None, _finish, exitpriority=-100)


def _is_pool_worker():
    """Daemonic children are killed, not asked, when their parent has no more work: they write at once."""
    processes = [sys.modules.get(pool + ".process") for pool in _POOLS]
    return any(process is not None and process.current_process().daemon for process in processes)


def _finish():
    global _append
    if _writer is not None and _writer.pid == os.getpid():
        _append = _append_and_write
        _writer.close()


def _before_fork():
    # With no thread beside it a fork is safe, and Python 3.12 and newer have no reason to warn.
    if _writer is not None:
        _writer.stop_thread()


def _after_fork_in_parent():
    global _append
    if _writer is not None and _writer.threaded and not _writer.closed:
        _writer.flush(patience=0)
        # Not started here: Python 3.13 counts the threads after this.
        _append = _first_after_fork


def _after_fork_in_child():
    """Begin anew: what waits was logged by the parent, and the parent writes it."""
    global _append, _starting, _writer
    writer = _writer
    if writer is None or writer.pid != os.getpid():
        _starting = threading.RLock()
    if writer is not None and writer.pid != os.getpid():
        _append, _writer = _first, None
        writer.forget_file()
    run.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
