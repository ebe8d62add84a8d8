"""The parent process of the user's script: starts the script, waits, and records the exit.

It does nothing else that could fail.

It is separate from the supervisor, so that neither the log nor the exit code is lost if the
supervisor is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from .allocation import current
from .claim import is_superseded
from .journal import write_with_reserve
from .markers import confirm_started, write_exit
from .pending_ending import retry_until_written
from .restart_detection import origin
from .run_lock import acquire_lock
from .shared import machine
from .shared.atomic_files import write_once, write_unsynced
from .shared.failpoint import failpoint
from .shared.failure import text_of
from .shared.layout import RunFolder
from .shared.program_lookup import is_noexec

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple

    from .run_spec import Spec
    from .shared.failure import Reason


def decide_start(run: RunFolder, decision: str, reason: Optional[Reason] = None, ending: Optional[str] = None) -> bool:
    """Decide once whether this run starts: ``start``, or ``never`` with the reason and the ending.

    The launcher, the cancel command, and the supervisor compete for one file, and the first to write it
    decides. So a run starts at most once, and never after a client was informed that it will not start.
    """
    data: Dict[str, Any] = {"decision": decision, "reason": reason, "pid": os.getpid(), "time": time.time()}
    if isinstance(reason, dict):
        data.update(reason=text_of(reason), failure=reason)
    if ending:
        data["ending"] = ending
    data.update(start=machine.start_time(os.getpid()), **origin())
    results: List[bool] = []
    write_with_reserve(run, lambda: results.append(write_once(run.start_decision, data)))
    return results[0]


def child_environment(spec: Spec, secrets: Dict[str, str]) -> Dict[str, str]:
    """Return the script's environment: inherited variables that the spec allows, run variables, and secrets.

    A job of a scheduler has only the variables that it was given or has set itself, so all of them are inherited.
    """
    of_job = current().environment
    inherited = {name: os.environ[name] for name in spec["inherit"] if name in os.environ}
    environment = dict(inherited if of_job is None else of_job)
    environment.update(spec["environment"])
    environment.update(secrets)
    if spec.get("path"):  # the environment's programs come before the machine's
        environment["PATH"] = os.pathsep.join([*spec["path"], environment.get("PATH") or os.defpath])
    return environment


def spawn_launcher(run: RunFolder, spec: Spec, secrets: Dict[str, str], umask: int, keep: Iterable[int] = ()) -> int:
    """Start the launcher process and return its PID.

    The launcher keeps the descriptors in ``keep`` open until it exits.
    """
    if machine.CAN_FORK:
        return machine.fork(lambda: launch(run, spec, secrets, umask), keep)
    return _spawn(run, secrets)


def launch(run: RunFolder, spec: Spec, secrets: Dict[str, str], umask: int) -> None:
    """Run the launcher process."""
    prepare_launcher_process()
    lock = acquire_lock(run.watcher_lock)
    failpoint("before-gate")
    if lock is None or is_superseded(run) or not decide_start(run, "start"):
        return
    failpoint("after-gate")
    facts = launch_facts()
    os.umask(umask)
    try:
        argv = [encode_argument(argument) for argument in spec["commands"][-1]["argv"]]
        pid, problem = _start(argv, child_environment(spec, secrets), run, facts)
    except Exception as error:  # noqa: BLE001 - any error means that the run did not start
        pid, problem = None, "cannot start the script: %s: %s" % (type(error).__name__, error)
    os.umask(0o077)
    if pid is None:
        record_exit(run, {"code": None, "signal": None, "problem": problem, "ended": time.time(), "elapsed": 0.0})
        return
    confirm_started(run)
    failpoint("after-start")
    code, signal_number = _wait(pid)
    ending: Dict[str, Any] = {"code": code, "signal": signal_number, "problem": None}
    ending.update(ended=time.time(), elapsed=time.monotonic() - facts["clock"])
    failpoint("before-exit")
    confirm_started(run)  # in case the first attempt failed
    record_exit(run, ending)


def record_exit(run: RunFolder, ending: Dict[str, Any]) -> None:
    """Record how the run ended, and retry while writes fail: no other process has this information."""
    retry_until_written(run, lambda: write_exit(run, ending), "the exit status")


def prepare_launcher_process() -> None:
    """Prepare the launcher process: signals to the caller's process group must not end it."""
    # Handlers, not SIG_IGN: ignored signals would stay ignored in the user's program.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if os.name != "nt" else ():
        signal.signal(number, lambda *_: None)
    machine.become_reaper()
    if machine.CAN_FORK:
        # Reset inherited signal settings: waiting for the child needs SIGCHLD, and the child needs all signals.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])


def launch_facts() -> Dict[str, Any]:
    """Return the facts to record about a start, except those about the started process."""
    facts: Dict[str, Any] = {"launcher": os.getpid(), "launcher_start": machine.start_time(os.getpid())}
    facts.update(time=time.time(), clock=time.monotonic(), oom_kills=machine.oom_kills())
    return facts


def _start(
    argv: List[bytes], environment: Dict[str, str], run: RunFolder, facts: Dict[str, Any]
) -> Tuple[Optional[int], Optional[str]]:
    """Fork and exec. A failing exec is reported through a pipe that is closed when exec succeeds.

    The child waits for the start signal, which is sent after its PID has been written to disk. If the
    launcher dies before that, the child exits: without ``starting.json``, nothing was started, and with
    it, the child can be found.
    """
    error_reader, error_writer = os.pipe()
    start_reader, start_writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(start_writer)
        _wait_for_start_signal(start_reader, run)
        _exec_command(argv, environment, run, error_writer)
    os.close(error_writer)
    os.close(start_reader)
    marker = dict(facts, pid=pid, start=machine.start_time(pid))
    write_with_reserve(run, lambda: write_unsynced(run.starting, marker))
    os.write(start_writer, b"!")
    os.close(start_writer)
    problem = b""
    while True:
        chunk = os.read(error_reader, 4096)
        if not chunk:
            break
        problem += chunk
    os.close(error_reader)
    if problem:
        os.waitpid(pid, 0)
        return None, problem.decode("utf-8", "replace")
    return pid, None


def _wait_for_start_signal(start_reader: int, run: RunFolder) -> None:
    if not os.read(start_reader, 1):  # the launcher died
        _remove_starting_marker(run)
        os._exit(127)


def _remove_starting_marker(run: RunFolder) -> None:
    """Remove the marker of a start that will not happen."""
    try:
        os.unlink(run.starting)
    except OSError:
        pass  # not yet written


def _exec_command(argv: List[bytes], environment: Dict[str, str], run: RunFolder, error_writer: int) -> None:
    action = "open the log"
    try:
        os.setsid()
        log = os.open(run.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        action = "enter " + run.work
        os.chdir(run.work)
        for descriptor, number in ((null, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, number)
        os.closerange(3, error_writer)
        os.closerange(error_writer + 1, 1024)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the user's program should not
            signal.signal(number, signal.SIG_DFL)
        action = "start " + os.fsdecode(argv[0])
        variables = {encode_argument(name): encode_argument(value) for name, value in environment.items()}
        os.execvpe(argv[0], argv, variables)
    except OSError as error:
        _remove_starting_marker(run)
        message = "cannot %s: %s%s" % (
            action,
            error.strerror,
            _explain_exec_error(argv[0]) if action.startswith("start") else "",
        )
        os.write(error_writer, message.encode("utf-8", "replace"))
    finally:
        os._exit(127)


def encode_argument(text: str) -> bytes:
    """Encode for the file system, or as UTF-8 if the locale lacks a character."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def _explain_exec_error(program: bytes) -> str:
    """Explain why a program that exists cannot be started; return "" if the reason is unknown."""
    try:
        with open(program, "rb") as file:
            first_line = file.readline(200)
    except OSError:
        return ""
    if is_noexec(os.fsdecode(program)):
        return "; it is on a disk mounted noexec: start it with an interpreter, such as sh or python"
    if b"/" not in program:
        return "; the project contains it: use ./%s" % os.fsdecode(program)
    if first_line.startswith(b"#!") and first_line.endswith(b"\r\n"):
        return "; its first line ends with a carriage return (Windows line ending)"
    return "; check the interpreter in its first line" if first_line.startswith(b"#!") else ""


def _wait(pid: int) -> Tuple[Optional[int], Optional[int]]:
    """Return the exit code or signal of the child. Inherited orphans are reaped as well."""
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return None, None
        if ended == pid:
            return decode_status(status)


def decode_status(status: int) -> Tuple[Optional[int], Optional[int]]:
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def _spawn(run: RunFolder, secrets: Dict[str, str]) -> int:
    raise OSError("the launcher is forked here")


if sys.platform == "win32":  # no fork, no setsid; untested
    import json
    import subprocess

    _process: Any = None

    def _spawn(run, secrets):  # type: ignore[no-untyped-def,no-redef]
        main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
        root, run_id = os.path.dirname(os.path.dirname(run.path)), os.path.basename(run.path)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", main, "launch", root, run_id],
            stdin=subprocess.PIPE,
            creationflags=machine.DETACHED,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"secrets": secrets}).encode("ascii"))
        process.stdin.close()
        return process.pid

    def _start(argv, environment, run, facts):  # type: ignore[no-untyped-def,no-redef]
        global _process
        with open(run.log, "ab") as log:
            try:
                _process = subprocess.Popen(
                    [os.fsdecode(argument) for argument in argv],
                    cwd=run.work,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            except OSError as error:
                return None, "cannot start %s: %s" % (os.fsdecode(argv[0]), error)
        write_unsynced(run.starting, dict(facts, pid=_process.pid, start=machine.start_time(_process.pid)))
        return _process.pid, None

    def _wait(pid):  # type: ignore[no-untyped-def,no-redef]
        return _process.wait(), None
