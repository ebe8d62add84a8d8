"""The points that wait in this process, and the one file they are appended to.

One writer belongs to one process. Any thread may flush; nothing here raises into the script.
"""

import os
import sys
import threading
import time
from collections import deque
from itertools import repeat, starmap

from ._lines import Encoder, lost_line
from ._run import tell_once

INTERVAL = 0.4  # seconds between two flushes: whoever is killed loses no more than the last half second
CHUNK = 10000  # points per write
MOST_WAITING = 1000000  # points kept in memory while the disk refuses them
MOST_EVER = 4000000  # and while it neither takes nor refuses them: the oldest go, uncounted
PATIENCE = 5  # seconds to wait for a flush of another thread that writes nothing: it may hang on a dead disk
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class Writer(object):
    def __init__(self, folder, hold_back):
        self.pid = os.getpid()
        self.threaded = False
        self._hold_back = hold_back  # told True when the script outruns the writer, False afterwards
        self.points = deque(maxlen=MOST_EVER)
        self.path = os.path.join(folder, "metrics", "%d-%s" % (self.pid, os.urandom(8).hex()))
        self.retry_at = 0.0
        self.closed = False
        self._lock = threading.RLock()
        self._busy = False
        self._encoder = Encoder()
        self._thread = self._stop = None
        self._fd = self._identity = None
        self._batch = []  # points taken from the buffer, without their lines yet
        self._pending = b""  # lines not in the file yet
        self._number = 0  # of the last point that has its line
        self._size = 0  # of the file, before the pending lines
        self._doubt = False  # a write began and its end was not seen
        self._lost = 0

    # -- flushing ------------------------------------------------------------------------------------------

    def flush(self, patience=None):
        """Write everything that waits now; say whether the turn was ours."""
        patience = PATIENCE if patience is None else patience
        number = self._number
        while not (self._lock.acquire(True, patience) if patience else self._lock.acquire(False)):
            if number == self._number:
                return False
            number = self._number  # another thread still writes, on a slow disk or a busy machine
        try:
            # A signal handler or a destructor may log in the middle of a flush of its own thread: the outer
            # flush goes on afterwards and takes that point with it.
            if not self._busy:
                self._busy = True
                try:
                    self._drain()
                finally:
                    self._busy = False
        finally:
            self._lock.release()
        return True

    def _drain(self):
        # Counted, so that a thread that never stops logging cannot hold the caller for ever.
        rounds = 2 + len(self.points) // CHUNK
        try:
            while rounds and (self.points or self._batch or self._pending or self._lost):
                rounds -= not self._batch  # long values are written a few at a time
                if len(self.points) > MOST_WAITING:
                    self._hold_back(True)
                    self._lost += len(self.points) == MOST_EVER  # at least this one
                self._open()
                self._fill()
                self._write()
            self.retry_at = 0.0
        except (OSError, MemoryError) as error:
            self.retry_at = time.monotonic() + INTERVAL
            self._drop_oldest()
            tell_once("disk", "metrics cannot be written now and are kept in memory: %r" % error)

    def _drop_oldest(self):
        excess = len(self.points) - MOST_WAITING
        if excess > 0:
            self._lost += excess
            deque(starmap(self.points.popleft, repeat((), excess)), maxlen=0)

    def _fill(self):
        """Make lines of the next points. A signal handler may raise anywhere here, and no point gets lost."""
        if self._pending:
            return
        if not self._batch:
            # One call in C, which no signal handler interrupts between taking a point and keeping it.
            self._batch.extend(starmap(self.points.popleft, repeat((), min(len(self.points), CHUNK))))
        lines, done = self._encoder.lines(self._batch, self._number)
        if self._lost:
            lines.insert(0, lost_line(self._lost))
        pending, rest = "".join(lines).encode("ascii"), self._batch[done:]
        self._pending, self._number, self._batch, self._lost = pending, self._number + done, rest, 0

    # -- the file ------------------------------------------------------------------------------------------

    def _open(self):
        """See to it that the descriptor is our file.

        Scripts that turn into daemons close all descriptors, and the number may be another file's since.
        """
        if self._is_ours():
            return
        try:
            os.mkdir(os.path.dirname(self.path), 0o700)
        except FileExistsError:
            pass
        fd = os.open(self.path, _FLAGS, 0o600)
        found = os.fstat(fd)
        self._fd, self._identity = fd, (found.st_dev, found.st_ino)

    def _is_ours(self):
        if self._fd is None:
            return False
        try:
            found = os.fstat(self._fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def _write(self):
        while self._pending:
            if self._doubt:
                self._look_how_far()
            self._doubt = True
            try:
                written = os.write(self._fd, self._pending)
            except OSError:
                self._doubt = False
                raise
            self._pending, self._size, self._doubt = self._pending[written:], self._size + written, False

    def _look_how_far(self):
        """A signal handler raised during a write: only the file, which has one writer, knows its result."""
        written = min(max(os.fstat(self._fd).st_size - self._size, 0), len(self._pending))
        self._pending, self._size, self._doubt = self._pending[written:], self._size + written, False

    # -- the thread ----------------------------------------------------------------------------------------

    def start_thread(self):
        """Say whether a thread flushes from now on. At the end of a process none does: atexit is past then."""
        if self.closed or not threading.main_thread().is_alive():
            return False
        if self._thread is not None:
            return True
        stop = threading.Lock()
        stop.acquire()
        thread = threading.Thread(target=self._flush_again_and_again, args=(stop,), name="mlworkbench")
        thread.daemon = True
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread, self._stop, self.threaded = thread, stop, True
        return True

    def _flush_again_and_again(self, stop):
        while not stop.acquire(True, INTERVAL):
            # Never waits for the lock: at the end of the process a waiting daemon thread would be stopped at
            # the moment it got it, and keep it.
            flushed = self._stop is stop and self.flush(patience=0)
            # Asked again: it may have been stopped during a long flush, and promises no next one then.
            if flushed and self._stop is stop and len(self.points) < CHUNK:
                self._hold_back(False)

    def stop_thread(self, patience=1):
        """The points stay; whoever calls starts it again."""
        thread, stop = self._thread, self._stop
        self._thread = self._stop = None
        if thread is not None:
            stop.release()
            thread.join(patience)
            _wait_until_gone(thread)

    def close(self):
        """The last flush of a process. Points logged later are written by the call that logs them."""
        self.closed = True
        if self._stop is not None:
            self._stop.release()
            self._thread = self._stop = None
        self.flush()

    def forget_file(self):
        """In the child of a fork: the file belongs to the parent."""
        if self._is_ours():
            os.close(self._fd)
        self._fd = None


def _wait_until_gone(thread):
    # Python 3.12 warns about a fork with threads by the kernel's count, which lags a moment behind join().
    task = "/proc/self/task/%s" % getattr(thread, "native_id", None)
    if sys.version_info >= (3, 12):
        tries = 2000
        while tries and os.path.exists(task):
            tries -= 1
            time.sleep(0.0001)
