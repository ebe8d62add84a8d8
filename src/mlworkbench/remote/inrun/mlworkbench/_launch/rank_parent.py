"""The parent of one rank: runs a command, and records how it ended in ``ranks/`` of the run folder, or of the attempt.

    python -E -s -S rank_parent.py COMMAND [ARGUMENT…]

A launcher such as torchrun starts this program instead of the script. Standard error is copied unchanged, and its end
is recorded, because the log contains the output of all ranks. The exit status is that of the command.

Requires only Python 3.5, because it runs with the script's Python.
"""

import errno
import os
import select
import signal
import sys
import time

from ranks import read_rank

_TAIL = 16384  # recorded bytes of standard error
_TRACEBACK = b"Traceback (most recent call last)"
_TRACEBACK_RECORDS = 64  # maximum records per traceback, whose lines may arrive one by one
_RECORD_RATE = 4.0  # records of output per second, after the first _TRACEBACK_RECORDS
_DRAIN_TIME = 1.0  # seconds to wait for output of child processes that outlive the rank
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NOT_STARTED = 127
_PR_SET_PDEATHSIG = 1


class Rank(object):
    """The process of one rank, and what is recorded about it."""

    def __init__(self, folder, number):
        self.path = os.path.join(folder, "%d.json" % number) if folder else None
        self.facts = {
            "rank": number,
            "host": os.uname().nodename,
            "started": time.time(),
            "terminated": None,
            "printed": None,
        }
        self.pid = None
        self.tail = b""
        self.records_left = 0  # of the traceback
        self._credit = float(_TRACEBACK_RECORDS)  # records that may be written now
        self._credited = time.monotonic()
        self._is_unrecorded = False

    def start(self, command, stderr):
        """Start the command in its own process group: a signal to the group of this process is forwarded once."""
        # Until the child is known, a signal waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _execute(command, stderr, parent)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._forward)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        os.close(stderr)
        self.facts["pid"] = self.pid
        self.record()

    def _forward(self, number, frame):
        """Forward a signal to the rank, but only once: the supervisor and the launcher may both send it."""
        if self.facts["terminated"] is None:
            self.facts["terminated"] = time.time()
            try:
                os.kill(self.pid, number)
            except OSError:
                pass  # it has just ended

    def copy(self, reader):
        """Copy available output; return False at its end."""
        try:
            data = os.read(reader, 65536)
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.EINTR)
        if data:
            self.facts["printed"] = time.time()
            self.tail = (self.tail + data)[-_TAIL:]
            self._record_traceback(data)
        view = data
        while view:
            try:
                view = view[os.write(2, view) :]
            except OSError:
                break  # the disk is full: the rank continues, as without this process
        return bool(data)

    def _record_traceback(self, data):
        """Record a traceback at once: after MPI_Abort, MPICH kills this process before it can record the end."""
        if _TRACEBACK in self.tail[-len(data) - len(_TRACEBACK) + 1 :]:  # not one that ended with the piece before
            self.records_left = _TRACEBACK_RECORDS
        if self.records_left:
            self.records_left -= 1
            self._is_unrecorded = True
            self.record_output()

    def record_output(self):
        """Record output that is not recorded yet, unless it is too early.

        A script may log hundreds of handled exceptions per second.
        """
        now = time.monotonic()
        self._credit = min(float(_TRACEBACK_RECORDS), self._credit + (now - self._credited) * _RECORD_RATE)
        self._credited = now
        if self._is_unrecorded and self._credit >= 1.0:
            self._credit -= 1.0
            self._is_unrecorded = False
            self.record(stderr=self.tail.decode("utf-8", "replace"))

    def record_delay(self):
        """Return in how many seconds to call ``record_output``, or None."""
        return max(0.0, 1.0 - self._credit) / _RECORD_RATE + 0.001 if self._is_unrecorded else None

    def record(self, **more):
        """Write the record. Errors must not affect the rank."""
        self.facts.update(more)
        if self.path is None:
            return
        import json  # noqa: PLC0415 - the command is already running

        part = "%s.%d" % (self.path, os.getpid())
        try:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(self.facts, file)
            os.rename(part, self.path)
        except OSError:
            pass


def _end_with_parent(parent):
    """Have this process killed if its parent dies: MPICH and Intel MPI kill only the processes that they started."""
    try:
        import ctypes  # noqa: PLC0415 - some Python builds lack it

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return  # not Linux
    if os.getppid() != parent:
        os._exit(_NOT_STARTED)


def _execute(command, stderr, parent):
    try:
        os.setpgid(0, 0)
        _end_with_parent(parent)
        os.dup2(stderr, 2)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, but not by the command
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, ("cannot start %s: %s\n" % (command[0], error.strerror)).encode("utf-8", "surrogateescape"))
    finally:
        os._exit(_NOT_STARTED)


def find_folder(environ):
    """Return the folder for records. Each attempt after the first has its own, as all its files."""
    run, attempt = environ.get("MLW_RUN_FOLDER"), environ.get("MLW_ATTEMPT", "")
    if not run:
        return None
    is_first = not attempt.isdigit() or int(attempt) < 2
    return os.path.join(run, "ranks") if is_first else os.path.join(run, "attempts", attempt, "ranks")


def main(command):
    rank = Rank(find_folder(os.environ), read_rank(os.environ))
    reader, writer = os.pipe()
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_writer)
    rank.start(command, writer)
    status = _watch(rank, reader, wake_reader)
    code, number = (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)
    rank.record(code=code, signal=number, ended=time.time())
    deadline = time.monotonic() + _DRAIN_TIME
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0] and rank.copy(reader):
        pass
    if code != 0:
        rank.record(stderr=rank.tail.decode("utf-8", "replace"))
    _exit(code, number)


def _watch(rank, reader, wake_reader):
    """Copy the output until the rank ends, and return its status."""
    sources, recorded = [reader, wake_reader], False
    while True:
        ready = select.select(sources, [], [], rank.record_delay())[0]
        rank.record_output()
        if wake_reader in ready:
            os.read(wake_reader, 4096)
            if rank.facts["terminated"] is not None and not recorded:
                recorded = True  # now, because SIGKILL may follow
                rank.record()
        if reader in ready and not rank.copy(reader):
            sources.remove(reader)  # the rank has closed its standard error
        pid, status = os.waitpid(rank.pid, os.WNOHANG)
        if pid:
            return status


def _exit(code, number):
    """End as the command did, so that the launcher reports it."""
    if number is not None:
        import resource  # noqa: PLC0415 - rarely needed

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank has dumped its core already
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code if code is not None else 128 + number)


if __name__ == "__main__":
    main(sys.argv[1:])
