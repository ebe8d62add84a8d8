"""The parent of the user's process: starts it, waits, writes how it ended. Nothing else, so that nothing can fail.

It is a process of its own beside the supervisor: killing the supervisor loses neither log nor exit code.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from .journal import spare_room
from .notes import promote, write_exit
from .pending_ending import until_written
from .restart import origin
from .run_lock import hold
from .shared import machine
from .shared.failpoint import failpoint
from .shared.failure import text_of
from .shared.files import write_first, write_note
from .shared.layout import RunFolder
from .shared.programs import is_noexec

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple

    from .run_spec import Spec
    from .shared.failure import Reason


def pass_gate(run: RunFolder, decision: str, reason: Optional[Reason] = None, ending: Optional[str] = None) -> bool:
    """Decide once and for all whether this run starts: ``start``, or ``never`` with the reason and the ending.

    Launcher, canceller and judge compete for one file. Whoever writes it first has decided, so that a run
    starts at most once, and never after somebody was told that it will not.
    """
    data: Dict[str, Any] = {"decision": decision, "reason": reason, "pid": os.getpid(), "time": time.time()}
    if isinstance(reason, dict):
        data.update(reason=text_of(reason), failure=reason)
    if ending:
        data["ending"] = ending
    data.update(start=machine.start_time(os.getpid()), **origin())
    won: List[bool] = []
    spare_room(run, lambda: won.append(write_first(run.gate, data)))
    return won[0]


def child_environment(spec: Spec, secrets: Dict[str, str]) -> Dict[str, str]:
    """The documented list and what the run asked for; nothing else of this machine's environment."""
    environment = {name: os.environ[name] for name in spec["inherit"] if name in os.environ}
    environment.update(spec["environment"])
    environment.update(secrets)
    if spec.get("path"):  # of the environment that we made: its programs go before the machine's
        environment["PATH"] = os.pathsep.join([*spec["path"], environment.get("PATH") or os.defpath])
    return environment


def put_to_work(run: RunFolder, spec: Spec, secrets: Dict[str, str], umask: int, keep: Iterable[int] = ()) -> int:
    """Start the launcher beside us; returns its pid. It holds ``keep`` open for as long as it lives."""
    if machine.FORKS:
        return machine.fork(lambda: launch(run, spec, secrets, umask), keep)
    return _spawn(run, secrets)


def launch(run: RunFolder, spec: Spec, secrets: Dict[str, str], umask: int) -> None:
    """Body of the launcher process."""
    stand_fast()
    held = hold(run.watch)
    failpoint("before-gate")
    if held is None or not pass_gate(run, "start"):
        return
    failpoint("after-gate")
    facts = launch_facts()
    os.umask(umask)
    try:
        argv = [encode(word) for word in spec["commands"][-1]["argv"]]
        pid, problem = _start(argv, child_environment(spec, secrets), run, facts)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run did not start, and that must be told
        pid, problem = None, "cannot start the script: %s: %s" % (type(error).__name__, error)
    os.umask(0o077)
    if pid is None:
        keep_exit(run, {"code": None, "signal": None, "problem": problem, "ended": time.time(), "elapsed": 0.0})
        return
    promote(run)
    failpoint("after-start")
    code, fatal = _wait(pid)
    ending: Dict[str, Any] = {"code": code, "signal": fatal, "problem": None}
    ending.update(ended=time.time(), elapsed=time.monotonic() - facts["clock"])
    failpoint("before-exit")
    promote(run)  # if the disk refused it at the start
    keep_exit(run, ending)


def keep_exit(run: RunFolder, ending: Dict[str, Any]) -> None:
    """Write how the run ended, however long the disk refuses it: nobody else knows."""
    until_written(run, lambda: write_exit(run, ending), "the exit status")


def stand_fast() -> None:
    """A launcher lives until its work is done: signals for our caller's group are not for us."""
    # Handlers, not SIG_IGN: ignored signals would stay ignored in the user's program.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if os.name != "nt" else ():
        signal.signal(number, lambda *_: None)
    machine.become_reaper()
    if machine.FORKS:
        # What our caller ignores or blocks must reach neither us, who wait for the child, nor the child.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])


def launch_facts() -> Dict[str, Any]:
    """What is noted of a start beside the process itself."""
    facts: Dict[str, Any] = {"launcher": os.getpid(), "launcher_start": machine.start_time(os.getpid())}
    facts.update(time=time.time(), clock=time.monotonic(), oom_kills=machine.oom_kills())
    return facts


def _start(
    argv: List[bytes], environment: Dict[str, str], run: RunFolder, facts: Dict[str, Any]
) -> Tuple[Optional[int], Optional[str]]:
    """Fork and exec; a failing exec is told through a pipe that closes itself when exec succeeds.

    The child waits for our word, which is given once it is on disk who it is. If we die before that, it ends:
    without ``starting.json`` nothing was started, and with it the child can be found.
    """
    told, tell = os.pipe()
    word, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        _await_word(word, run)
        _become(argv, environment, run, tell)
    os.close(tell)
    os.close(word)
    noted = dict(facts, pid=pid, start=machine.start_time(pid))
    spare_room(run, lambda: write_note(run.starting, noted))
    os.write(go, b"!")
    os.close(go)
    problem = b""
    while True:
        part = os.read(told, 4096)
        if not part:
            break
        problem += part
    os.close(told)
    if problem:
        os.waitpid(pid, 0)
        return None, problem.decode("utf-8", "replace")
    return pid, None


def _await_word(word: int, run: RunFolder) -> None:
    if not os.read(word, 1):  # the launcher is dead
        _withdraw(run)
        os._exit(127)


def _withdraw(run: RunFolder) -> None:
    """Take back that we are about to start."""
    try:
        os.unlink(run.starting)
    except OSError:
        pass  # it was not said yet


def _become(argv: List[bytes], environment: Dict[str, str], run: RunFolder, tell: int) -> None:
    doing = "open the log"
    try:
        os.setsid()
        log = os.open(run.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        doing = "enter " + run.work
        os.chdir(run.work)
        for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, number)
        os.closerange(3, tell)
        os.closerange(tell + 1, 1024)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the user's program should not
            signal.signal(number, signal.SIG_DFL)
        doing = "start " + os.fsdecode(argv[0])
        names = {encode(name): encode(value) for name, value in environment.items()}
        os.execvpe(argv[0], argv, names)
    except OSError as error:
        _withdraw(run)
        words = "cannot %s: %s%s" % (doing, error.strerror, _why(argv[0]) if doing.startswith("start") else "")
        os.write(tell, words.encode("utf-8", "replace"))
    finally:
        os._exit(127)


def encode(text: str) -> bytes:
    """As the file system wants it; as UTF-8 where its locale has no such character."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def _why(program: bytes) -> str:
    """What stands behind "No such file" for a file that is there."""
    try:
        with open(program, "rb") as file:
            first = file.readline(200)
    except OSError:
        return ""
    if is_noexec(os.fsdecode(program)):
        return "; it is on a disk mounted noexec: start it with an interpreter, such as sh or python"
    if b"/" not in program:
        return "; the project contains it: use ./%s" % os.fsdecode(program)
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        return "; its first line ends with a carriage return (Windows line ending)"
    return "; check the interpreter in its first line" if first.startswith(b"#!") else ""


def _wait(pid: int) -> Tuple[Optional[int], Optional[int]]:
    """Exit code or signal of the child; orphans that were left to us are reaped on the way."""
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return None, None
        if ended == pid:
            return decode(status)


def decode(status: int) -> Tuple[Optional[int], Optional[int]]:
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
                    [os.fsdecode(word) for word in argv],
                    cwd=run.work,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            except OSError as error:
                return None, "cannot start %s: %s" % (os.fsdecode(argv[0]), error)
        write_note(run.starting, dict(facts, pid=_process.pid, start=machine.start_time(_process.pid)))
        return _process.pid, None

    def _wait(pid):  # type: ignore[no-untyped-def,no-redef]
        return _process.wait(), None
