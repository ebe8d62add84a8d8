"""The buffer of points in this process, and the file to which they are appended.

Each process has one writer. Any thread may flush, and no error reaches the script.

A script that logs rarely writes each point in the call, because that costs less than waking a thread. When points
come in quick succession, a thread writes them every 0.1 s; it ends when there is nothing to write. See ``_log``.
"""

import os
import sys
import threading
import time
from collections import deque
from itertools import repeat, starmap

from ._launch.ranks import read_rank
from ._lines import Encoder, lost_line
from ._run import warn_once

INTERVAL = 0.1  # seconds between two flushes of the thread: a killed process loses at most these points
RETRY_DELAY = 0.4  # seconds after a failed write
FLUSHES = 10  # flushes of the thread, until the next call shows whether the script still logs often
SLOW_DISK_PAUSE = 60  # seconds in which only the thread writes, after a slow write in a call
CHUNK = 10000  # maximum number of points per write
MAX_WAITING = 1000000  # maximum points kept in memory while writes fail
MAX_BUFFERED = 4000000  # maximum points while the disk hangs; older ones are dropped without being counted
LOCK_TIMEOUT = 5  # seconds to wait for a flush in another thread that makes no progress: the disk may hang
AT_REST, BUFFERED, DIRECT = "at rest", "buffered", "direct"  # who writes a point: see the variants of _append in _log
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class Writer(object):
    def __init__(self, folder, mode_changed):
        self.pid = os.getpid()
        self.mode = AT_REST
        self.called_at = 0.0  # time of the newest point that was logged at rest
        self._mode_changed = mode_changed  # function that is called with this writer
        self.points = deque(maxlen=MAX_BUFFERED)
        rank = read_rank(os.environ)
        suffix = ".rank%d" % rank if rank else ""  # also used in remote/shared/metric_limits.py
        self.path = os.path.join(folder, "metrics", "%d-%s%s" % (self.pid, os.urandom(8).hex(), suffix))
        self.retry_at = 0.0
        self.closed = False
        self._lock = threading.RLock()
        self._thread_lock = threading.RLock()  # held to start the thread, and by the thread when it ends
        self._rest_after = 0.0  # monotonic time before which calls do not write
        self._is_flushing = False
        self._encoder = Encoder()
        self._thread = self._stop = None
        self._fd = self._identity = None
        self._batch = []  # points taken from the buffer, not encoded yet
        self._pending = b""  # encoded lines, not written yet
        self._line_number = 0  # of the last encoded point
        self._size = 0  # file size without the pending lines
        self._is_write_unconfirmed = False  # whether a write has started and its result is unknown
        self._lost_count = 0

    def set_mode(self, mode):
        self.mode = mode
        self._mode_changed(self)

    # -- flushing ------------------------------------------------------------------------------------------

    def write_point(self, point):
        """Write a point at once; return False if it must be buffered. A failed write is repeated by the next flush."""
        # The script waits, and CPU caches are cold: this must execute little code.
        if not self._lock.acquire(False):
            return False
        try:
            if self._is_flushing or self.points or self._batch or self._pending:
                return False
            self._is_flushing = True
            try:
                line = self._encoder.line(point, self._line_number + 1).encode("ascii")
                self._pending, self._line_number = line, self._line_number + 1
                self._open()
                self._write()
            except (OSError, MemoryError) as error:
                self._postpone(error)
                return bool(self._pending)
            finally:
                self._is_flushing = False
        finally:
            self._lock.release()
        return True

    def flush(self, timeout=None):
        """Write everything in the buffer; return False if another thread holds the lock."""
        timeout = LOCK_TIMEOUT if timeout is None else timeout
        number = self._line_number
        while not (self._lock.acquire(True, timeout) if timeout else self._lock.acquire(False)):
            if number == self._line_number:
                return False
            number = self._line_number  # another thread is still writing, on a slow disk or a busy machine
        try:
            # A signal handler or a destructor may log during a flush in the same thread: the outer flush
            # continues afterwards and also writes that point.
            if not self._is_flushing:
                self._is_flushing = True
                try:
                    self._drain()
                finally:
                    self._is_flushing = False
        finally:
            self._lock.release()
        return True

    def _drain(self):
        # The rounds are limited, so that a thread that never stops logging cannot block the caller forever.
        rounds = 2 + len(self.points) // CHUNK
        try:
            while rounds and (self.points or self._batch or self._pending or self._lost_count):
                rounds -= not self._batch  # a batch of long values needs several writes, which count as one round
                if len(self.points) > MAX_WAITING:
                    self.set_mode(DIRECT)
                    self._lost_count += len(self.points) == MAX_BUFFERED  # at least one point was dropped
                self._open()
                self._encode_batch()
                self._write()
            self.retry_at = 0.0
        except (OSError, MemoryError) as error:
            self._postpone(error)

    def _postpone(self, error):
        self.retry_at = time.monotonic() + RETRY_DELAY
        self._drop_oldest()
        warn_once("disk", "metrics cannot be written now and are kept in memory: %r" % error)

    def _drop_oldest(self):
        excess = len(self.points) - MAX_WAITING
        if excess > 0:
            self._lost_count += excess
            deque(starmap(self.points.popleft, repeat((), excess)), maxlen=0)

    def _encode_batch(self):
        """Encode the next points. If a signal handler raises an exception, no point is lost."""
        if self._pending:
            return
        if not self._batch:
            # A single call in C: no signal handler can run between removing and storing a point.
            self._batch.extend(starmap(self.points.popleft, repeat((), min(len(self.points), CHUNK))))
        lines, done = self._encoder.lines(self._batch, self._line_number)
        if self._lost_count:
            lines.insert(0, lost_line(self._lost_count))
        pending, rest = "".join(lines).encode("ascii"), self._batch[done:]
        self._pending, self._line_number, self._batch, self._lost_count = pending, self._line_number + done, rest, 0

    # -- the file ------------------------------------------------------------------------------------------

    def _open(self):
        """Ensure that the descriptor refers to the metrics file.

        Scripts that become daemons close all descriptors, so the number may now refer to another file.
        """
        if self._size and self._is_at_end() or self._is_file_open():
            return
        try:
            os.mkdir(os.path.dirname(self.path), 0o700)
        except FileExistsError:
            pass
        fd = os.open(self.path, _FLAGS, 0o600)
        status = os.fstat(fd)
        self._fd, self._identity = fd, (status.st_dev, status.st_ino)

    def _is_at_end(self):
        """Return whether the descriptor is at the end of the metrics file: a fast check before each write.

        If a script closed the descriptor, a file that got its number later has another position.
        """
        try:
            return os.lseek(self._fd, 0, os.SEEK_CUR) == self._size
        except OSError:
            return False

    def _is_file_open(self):
        if self._fd is None:
            return False
        try:
            status = os.fstat(self._fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def _write(self):
        while self._pending:
            if self._is_write_unconfirmed:
                self._check_written()
            self._is_write_unconfirmed = True
            try:
                written = os.write(self._fd, self._pending)
            except OSError:
                self._is_write_unconfirmed = False
                raise
            self._pending, self._size, self._is_write_unconfirmed = self._pending[written:], self._size + written, False

    def _check_written(self):
        """Determine from the file size how much an interrupted write has written. The file has no other writer."""
        written = min(max(os.fstat(self._fd).st_size - self._size, 0), len(self._pending))
        self._pending, self._size, self._is_write_unconfirmed = self._pending[written:], self._size + written, False

    # -- the thread ----------------------------------------------------------------------------------------

    def start_thread(self):
        """Have the thread write the points; return False if it cannot be started.

        It cannot be started while the process exits, after atexit.
        """
        with self._thread_lock:
            if self.closed or not threading.main_thread().is_alive():
                return False
            if self._thread is None:
                stop = threading.Lock()
                stop.acquire()
                thread = threading.Thread(target=self._flush_periodically, args=(stop,), name="mlworkbench")
                thread.daemon = True
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread, self._stop = thread, stop
            self.set_mode(BUFFERED)
            return True

    def rest_later(self):
        """Leave writing to the thread for a while, because writes are slow."""
        self._rest_after = time.monotonic() + SLOW_DISK_PAUSE

    def _flush_periodically(self, stop):
        flushes = 0
        while not stop.acquire(True, INTERVAL):
            is_idle = not self.points
            # Do not wait for the lock: when the process exits, a waiting daemon thread would be stopped
            # as soon as it acquires the lock, and would keep it.
            flushed = self.flush(timeout=0)
            flushes += 1
            # A thread that was stopped during a long flush will not write later points.
            if flushed and self._stop is stop and self._is_over(stop, is_idle, flushes):
                return

    def _is_over(self, stop, is_idle, flushes):
        """Choose the mode after a flush; return True if the thread ends.

        It ends one interval after the change of mode, so that it also writes a point that a call appended meanwhile.
        """
        if self.mode == AT_REST and is_idle:
            with self._thread_lock:
                if self.mode == AT_REST and self._stop is stop:
                    self._thread = self._stop = None
                    return True
        elif self.mode == DIRECT and len(self.points) < CHUNK:
            self.set_mode(BUFFERED)
        elif self.mode == BUFFERED and (is_idle or flushes % FLUSHES == 0) and self._may_rest():
            self.set_mode(AT_REST)
        return False

    def _may_rest(self):
        return not self.retry_at and time.monotonic() >= self._rest_after

    def stop_thread(self, timeout=1):
        """Stop the thread and keep the points; return whether it was running."""
        thread, stop = self._thread, self._stop
        self._thread = self._stop = None
        if thread is not None:
            stop.release()
            thread.join(timeout)
            _wait_for_exit(thread)
        return thread is not None

    def close(self):
        """Flush at the end of the process. Points logged later are written directly."""
        self.closed = True
        if self._stop is not None:
            self._stop.release()
            self._thread = self._stop = None
        self.flush()

    def forget_file(self):
        """Close the parent's file in a forked child."""
        if self._is_file_open():
            os.close(self._fd)
        self._fd = None


def _wait_for_exit(thread):
    # Python 3.12 decides by the kernel's thread count whether to warn about forks. It is updated shortly after join().
    task = "/proc/self/task/%s" % getattr(thread, "native_id", None)
    if sys.version_info >= (3, 12):
        tries = 2000
        while tries and os.path.exists(task):
            tries -= 1
            time.sleep(0.0001)
