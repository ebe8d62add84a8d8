"""Run a test session in its own namespaces: `python -m tests ARGUMENTS` is `pytest ARGUMENTS` without leftovers.

As root on Linux the session gets its own process and mount namespaces. When its first process ends, the kernel kills
every process in them and removes the mounts. Temporary files are in one folder that is removed at the end. Anything
that remains after the tests is listed and fails the session. After a `kill -9` the next session cleans up.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from tests.leftovers import SessionFolder, State, lock, remove_abandoned, wait_for_processes
from tests.machines.memory import IN_MEMORY, is_enough, mount_memory

_NEW_MOUNTS, _NEW_PIDS = 0x00020000, 0x20000000  # CLONE_NEWNS, CLONE_NEWPID
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PATIENCE = 60  # seconds that fixtures have after a signal to stop their processes


def main(arguments: list[str]) -> int:
    remove_abandoned()
    before = State.now()
    with SessionFolder() as folder:
        code = _in_namespaces(folder, arguments) if _may_isolate() else _pytest(folder, arguments).wait()
    remove_abandoned()
    left = State.now().beyond(before)
    for line in left:
        print(f"left behind: {line}", file=sys.stderr)
    return code or (1 if left else 0)


def _may_isolate() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0


def _pytest(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "pytest", f"--basetemp={folder}/t", *arguments]
    return subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(folder)}, preexec_fn=_feel_signals)


def _feel_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _in_namespaces(folder: Path, arguments: list[str]) -> int:
    """Start the first process of the session and forward signals to it."""
    ours = os.open("/proc/self/ns/pid", os.O_RDONLY)
    _call("unshare", _NEW_PIDS)
    first = os.fork()
    if first == 0:
        _call("prctl", _END_WITH_PARENT, signal.SIGKILL)
        _call("unshare", _NEW_MOUNTS)
        os._exit(_first_process(folder, arguments))
    _call("setns", ours, _NEW_PIDS)  # otherwise this process cannot fork after the first process ends
    os.close(ours)
    # Ctrl-C in a terminal also reaches pytest; `kill` and `make` signal only this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(first, signal.SIGTERM))
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _first_process(folder: Path, arguments: list[str]) -> int:
    """Run pytest as process 1 of the namespace: reap orphans, and report what remains after the tests."""
    for argv in (["mount", "--make-rprivate", "/"], ["mount", "-t", "proc", "proc", "/proc"]):
        subprocess.run(argv, check=True)
    if is_enough():
        mount_memory(folder)
        lock(folder)  # the mount hides the locked folder, and nested sessions remove folders without a lock
        os.environ[IN_MEMORY] = "1"
    before = State.inside()
    process = _pytest(folder, arguments)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        process.send_signal(signal.SIGINT)  # pytest then runs the teardown of fixtures
        signal.alarm(_PATIENCE)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + signal.SIGTERM))
    code = _reap_until(process.pid)
    wait_for_processes()
    left = State.inside().beyond(before)
    for line in left:
        print(f"left behind: {line}", file=sys.stderr)
    return code or (1 if left else 0)


def _reap_until(pid: int) -> int:
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
