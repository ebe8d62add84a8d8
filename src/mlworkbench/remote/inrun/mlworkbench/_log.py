"""``log`` and ``flush``: a call writes its point, or appends it to a buffer that a thread writes soon after.

``_append`` is replaced during the life of a process, so that calls need few checks:

    _append_first          nothing was logged yet: creates the writer, then calls one of the others
    _append_at_rest        the script logs rarely, or logs its first point: writes each point in the call
    points.append          the script logs often: the thread writes every 0.1 s
    _append_checking_pid   the same, for a Python without fork hooks (before 3.7)
    _append_and_write      write directly: after the last flush of the process, in pool workers (SIGTERM
                           ends them), and while the script is faster than the writer
    _ignore                MLW_TRACKING=off, or no local run can be created
"""

import atexit
import os
import sys
import threading
import time

from ._run import run
from ._values import plain_data, plain_key, plain_name, plain_step, plain_value
from ._writer import AT_REST, BUFFERED, Writer

_NO_VALUE = object()
_POOL_MODULES = ("multiprocessing", "multiprocess", "billiard")  # the standard library's module and common copies
_HAS_FORK_HOOKS = hasattr(os, "register_at_fork") or not hasattr(os, "fork")
_MIN_GAP = 0.04  # seconds between two calls of a script that logs rarely; a write with cold caches takes 0.05 to 0.1 ms
_SLOW_WRITE = 0.05  # seconds
_now = time.time


def log(name, value=_NO_VALUE, step=None):
    """Log metrics: ``log("loss", 0.5)``, ``log("loss", 0.5, step=3)``, or ``log({"loss": 0.5, "acc": 0.9}, step=3)``.

    Logging the same name again adds a point to its series. Values can be numbers, strings, bools, None, numpy scalars
    and arrays, and lists of these. A full disk does not raise an error.
    """
    # During training, CPU caches are cold and memory accesses are expensive, so use literals instead of names.
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
    elif value is _NO_VALUE:
        _log_many(name, step)
    elif step is None and isinstance(name, dict):
        _log_many(name, value)
    else:
        _append((plain_name(name), plain_value(value), _now(), plain_step(step)))


def _log_many(values, step):
    if not isinstance(values, dict):
        raise TypeError("log(name, value) needs a value, or a dict of values instead of a name")
    when, step = _now(), plain_step(step)
    # Check all values before recording the first one, so that a failing call records nothing.
    points = [(plain_name(name), plain_value(value), when, step) for name, value in values.items()]
    writer = _writer
    if _append is _append_at_rest and writer is not None and _HAS_FORK_HOOKS:
        writer.points.extend(points[:-1])  # the last point writes all
        points = points[-1:]
    for point in points:
        _append(point)


def log_point(name, value, when, step=None):
    """Log a point with the given time."""
    _append((plain_key(name, "a metric's name"), plain_value(value), float(when), plain_step(step)))


def record(kind, data, when=None):
    """Write a record that is not a metric: parameters, tags, and descriptions of files. ``data`` is a dict."""
    entry = plain_key(kind, "a record's kind"), plain_data(data)
    _append((None, entry, _now() if when is None else float(when), None))


def flush():
    """Write everything logged so far to disk. Returns when the data is written, or when the disk rejects it."""
    writer = _writer
    if writer is not None and writer.pid == os.getpid():
        writer.flush()


# -- variants of _append -----------------------------------------------------------------------------------


def _append_first(point):
    _start()
    _append(point)


def _append_at_rest(point):
    writer = _writer
    if writer is None or not _HAS_FORK_HOOKS and writer.pid != os.getpid():
        _append_checking_pid(point)
        return
    when = point[2]
    gap, writer.called_at = when - writer.called_at, when
    if gap < _MIN_GAP:
        writer.points.append(point)
        _write_by_thread(writer)
    elif writer.write_point(point):
        if writer.retry_at or _now() - when > _SLOW_WRITE:
            writer.rest_later()
            _write_by_thread(writer)
    else:
        writer.points.append(point)
        if not writer.flush(timeout=0):
            _write_by_thread(writer)


def _write_by_thread(writer):
    global _append
    if not writer.start_thread() and writer is _writer:
        _append = _append_and_write
        writer.flush()


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
    # While writes fail, retry occasionally instead of in every call.
    writer = _writer
    if writer is not None and time.monotonic() >= writer.retry_at:
        writer.flush()


def _follow_mode(writer):
    """Choose the variant of _append for the mode of the writer."""
    global _append
    if writer is not _writer:
        return
    if writer.mode == AT_REST:
        _append = _append_at_rest
    elif writer.mode == BUFFERED:
        _append = writer.points.append if _HAS_FORK_HOOKS else _append_checking_pid
    # Check after the change, because _finish may have run in another thread in the meantime.
    if writer.closed or writer.mode not in (AT_REST, BUFFERED):
        _append = _append_and_write


_append = _append_first
_writer = None
_starting = threading.RLock()
_was_threaded = False  # whether the thread was stopped for the current fork


# -- start, exit, and fork ----------------------------------------------------------------------------------


def _start():
    global _append, _writer
    if run.folder is None:
        _append = _ignore
        return
    writer = Writer(run.folder, _follow_mode)
    with _starting:
        if _append is not _append_first:  # another thread or a signal handler has already started the writer
            return
        _writer, _append = writer, _append_and_write if _is_pool_worker() else _append_at_rest
    _flush_at_exit()


def _flush_at_exit():
    atexit.unregister(_finish)
    atexit.register(_finish)
    # Children of multiprocessing exit through os._exit without atexit, but they run these finalizers.
    for pool in _POOL_MODULES:
        util = sys.modules.get(pool + ".util")
        if util is not None:
            util.Finalize(None, _finish, exitpriority=-100)


def _is_pool_worker():
    """Return whether this is a daemonic child process.

    Such a process writes directly, because its parent kills it without warning.
    """
    processes = [sys.modules.get(pool + ".process") for pool in _POOL_MODULES]
    return any(process is not None and process.current_process().daemon for process in processes)


def _finish():
    global _append
    if _writer is not None and _writer.pid == os.getpid():
        _append = _append_and_write
        _writer.close()


def start_new_file():
    """Flush and close the current metrics file. Points logged later are written to the run that is current then."""
    global _append, _writer
    with _starting:
        writer = _writer
        if writer is None or writer.pid != os.getpid():
            return
        # Replace both before the last flush, which also writes a point that another thread is appending now.
        _append, _writer = _append_first, None
    writer.close()


def _before_fork():
    # Forking is safe without the thread, and Python 3.12 and newer do not emit a warning.
    global _was_threaded
    _was_threaded = _writer is not None and _writer.stop_thread()


def _after_fork_in_parent():
    # The thread is not started here, because Python 3.13 counts threads after this hook: a later call starts it.
    writer = _writer
    if writer is not None and _was_threaded and not writer.closed:
        writer.flush(timeout=0)
        writer.set_mode(AT_REST)


def _after_fork_in_child():
    """Start with an empty buffer, because the parent process writes the points that it logged."""
    global _append, _starting, _writer
    writer = _writer
    if writer is None or writer.pid != os.getpid():
        _starting = threading.RLock()
    if writer is not None and writer.pid != os.getpid():
        _append, _writer = _append_first, None
        writer.forget_file()
    run.reset_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
