"""The run as a container: its launcher, and what the supervisor asks of it. Beside it: ``processes.py``.

The engine makes and starts the container; inside, a small shell waits for our word, which also brings the secrets, and
becomes the user's command. Whoever holds the lock ``watch`` looks after the container: the launcher, or, should it be
killed, a watcher that the supervisor puts in its place. A container is made once, and without the word it does nothing.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

from .complaints import MOUNTS, UNFIT, explain, explain_pull, missing, unstarted
from .engine import (
    NO_COMMAND,
    NO_LIBC,
    NO_LOG,
    Engine,
    finish,
    forget_login,
    is_missing_image,
    is_refused,
    mounts,
    run_command,
)
from .images import misfit
from .journal import spare_room
from .launcher import encode, launch_facts, pass_gate, stand_fast
from .mounts import Refused, inspect, make, refuse_written, translate
from .notes import alive, promote, read_gate, read_started
from .processes import RUNNING
from .run_lock import hold
from .shared import machine
from .shared.containers import REGISTRY_PASSWORD, SHARE
from .shared.failpoint import failpoint
from .shared.failure import Failed
from .shared.files import write_note
from .shared.layout import RunFolder
from .watcher import (
    close_door,
    forget_container,
    note_unstarted,
    read_end,
    reap,
    remove_if_ours,
    remove_patiently,
    see_out,
    watch_again,
)

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, Union

    from .run_spec import Spec

    Facts = Optional[Dict[str, Any]]

_NO_PROGRAM = "image %s has no program %s, or it is not executable"
_NO_LOG = "user %s cannot write the log from inside the container"


class Contained:
    """``Work`` of a container."""

    def __init__(self, run: RunFolder, spec: Spec) -> None:
        self._run = run
        self._spec = spec
        self._engine = Engine(spec["container"])
        self._launcher: Tuple[Optional[int], Optional[int]] = (None, None)
        self._told_step = False
        self._next_watcher = 0.0

    def prepare(self) -> None:
        """What must be there before the start, beside the code: folders of ours that are to be mounted.

        Those that the user named must be there already; one misspelt must not come into being.
        """
        if sys.platform != "linux":
            # Elsewhere the engine lives in a virtual machine, which the word's FIFO does not reach into.
            raise OSError("containers are supported on Linux only")
        root = os.path.dirname(os.path.dirname(self._run.path))
        container = self._spec["container"]
        for source, target, _ in container.get("mounts") or ():
            if source == self._run.users:
                self._write_users()
            elif source.startswith(root + os.sep) or target.rstrip("/") == SHARE.rstrip("/"):
                try:
                    make(translate(source, container.get("resolved") or ()))
                except Refused as reason:
                    raise OSError(str(reason)) from None

    def _write_users(self) -> None:
        """A list of users for the container: images know nobody of this machine."""
        container = self._spec["container"]
        known = container.get("environment") or {}
        name, home = known.get("USER") or "user", known.get("HOME") or "/"
        with open(self._run.users, "w", encoding="utf-8") as file:
            file.write("root:x:0:0:root:/root:/bin/sh\n%s:x:%s::%s:/bin/sh\n" % (name, container["user"], home))
        os.chmod(self._run.users, 0o644)  # it is the container's user who reads it

    def start(self, secrets: Dict[str, str], umask: int, keep: List[int]) -> None:
        """Start the launcher, which passes the gate or does not, and holds ``keep`` open."""
        pid = machine.fork(lambda: launch(self._run, self._spec, secrets, umask), keep)
        self._launcher = (pid, machine.start_time(pid))

    def coming(self) -> bool:
        """Whether a launcher of ours lives."""
        return alive(self._launcher)

    def step(self) -> Facts:
        """Something worth telling before the start: that the image is being fetched."""
        if self._told_step or not os.path.exists(self._run.pull):
            return None
        self._told_step = True
        return {"step": "image", "image": self._spec["container"]["image"]}

    def reap(self) -> None:
        """Our children: launcher and watchers."""
        reap()

    def started(self) -> Facts:
        return read_started(self._run)

    def ended_unseen(self) -> Facts:
        """Nobody watches the container: put somebody there. The ending is for that one to find out."""
        gate = read_gate(self._run)
        if gate and not machine.is_locked(self._run.watch) and time.monotonic() >= self._next_watcher:
            self._next_watcher = time.monotonic() + 1.0
            machine.fork(lambda: watch_again(self._run, self._spec))
        return None

    def after_restart(self, rebooted: bool, waiting: Callable[[], None]) -> Union[str, Facts]:
        """RUNNING, or how the script had ended by the engine's own record; None if the restart ended it.

        An engine outside of a restarted container has kept it going, and is waited for; after a reboot none has.
        """
        state = self._engine.inspect()
        while state["status"] == "down" and not rebooted and not os.path.exists(self._run.cancel):
            waiting()
            time.sleep(1.0)
            state = self._engine.inspect()
        if state["status"] not in ("exited", "dead", "stopped") or state.get("owner") != self._run.path:
            alive = state["status"] in ("running", "paused", "restarting")
            return RUNNING if alive and state.get("owner") == self._run.path else None
        ended = read_end(state, self._engine, True)
        if ended.get("stopped") or ended["signal"] is not None:
            return None
        return dict(ended, ended=time.time(), elapsed=None)

    def living(self, facts: Facts) -> List[Tuple[int, int]]:
        """Processes that outlive the main one: when that ends, the engine ends all others in the container."""
        return []

    def terminate(self, facts: Facts) -> None:
        self._signal(signal.SIGTERM)

    def kill(self, facts: Facts) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._engine.inspect()["status"] in ("exited", "created", "missing"):
            return  # before the start the launcher sees to it, and after the end there is nothing to do
        if not self._engine.signal(number):
            # An engine that is down cannot help; the processes of the user's own are within our own reach.
            machine.signal_all(machine.family(self._run.path, [os.getpid()], []), number)

    def leave(self) -> None:
        """Before the ending is told: no container is left, if the engine answers at all."""
        patience = time.monotonic() + 20.0
        while os.path.exists(self._run.container) and time.monotonic() < patience:
            if not machine.is_locked(self._run.watch):
                remove_if_ours(self._engine, self._run)
                return
            time.sleep(0.005)


# -- the launcher ------------------------------------------------------------------------------------------------


def launch(run: RunFolder, spec: Spec, secrets: Dict[str, str], umask: int) -> None:
    """Body of the launcher process."""
    stand_fast()
    held = hold(run.watch)
    failpoint("before-gate")
    if held is None or not pass_gate(run, "start"):
        return
    failpoint("after-gate")
    engine = Engine(spec["container"])
    start = _Start(run, spec, engine, secrets)
    problem, cancelled = None, False
    try:
        start.go(umask)
    except NotStarted as reason:
        problem, cancelled = reason.failure, isinstance(reason, CancelledFirst)
        if isinstance(reason, NotMade):
            forget_container(run)
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = unstarted("cannot start the container: %s: %s" % (type(error).__name__, error))
    if problem is not None:
        close_door(run)
        note_unstarted(run, problem, cancelled)
        if os.path.exists(run.container):
            remove_patiently(engine, run, remove_if_ours)
        return
    failpoint("after-start")
    see_out(engine, run, start.facts)


class NotStarted(Failed):
    """Why the script was not started."""

    code = explain = "could-not-start"


class CancelledFirst(NotStarted):
    """Somebody canceled the run before that."""

    def __init__(self) -> None:
        super().__init__("canceled before it started", code="cancelled")


class NotMade(NotStarted):
    """The same, and it is certain that there is no container to be removed."""


class _Start:
    """The way to the script's first line: one call of the engine, and the word as soon as somebody inside listens."""

    def __init__(self, run: RunFolder, spec: Spec, engine: Engine, secrets: Dict[str, str]) -> None:
        self.facts: Dict[str, Any] = {}
        self._run = run
        self._spec = spec
        self._engine = engine
        self._secrets = dict(secrets)
        self._password = self._secrets.pop(REGISTRY_PASSWORD, "")

    def go(self, umask: int) -> None:
        """Start the script, or raise NotStarted."""
        run, container = self._run, self._spec["container"]
        word = word_text(self._secrets)
        os.close(os.open(run.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        os.mkfifo(run.word, 0o600)
        spare_room(run, lambda: write_note(run.container, {"name": container["name"], "engine": container["engine"]}))
        complaint = self._run_once(self._command(umask), word)
        if complaint and is_missing_image(complaint):
            if not container.get("pull", True):
                raise NotStarted(**missing(container["image"]))
            self._pull()
            complaint = self._run_once(self._command(umask), word)
        if complaint:
            kind = NotMade if is_refused(complaint) else NotStarted
            raise kind(**explain(complaint, container))

    def _command(self, umask: int) -> List[str]:
        """The call of the engine, after the last look at what it mounts."""
        container = self._spec["container"]
        wanted = mounts(container, self._run)
        runs = os.path.dirname(self._run.path)
        root = translate(os.path.dirname(runs), container.get("resolved") or ())
        try:
            inner = inspect(wanted, container.get("socket"))
            outside = [source for source, _, _ in wanted if not source.startswith(root + os.sep)]
            refuse_written(outside, runs, self._run.path)
        except Refused as reason:
            raise NotStarted(**reason.failure) from None
        given = [*(container.get("mounts") or ()), *inner]
        return run_command(dict(self._spec, container=dict(container, mounts=given)), self._run, umask)

    def _run_once(self, command: List[str], word: bytes) -> Optional[str]:
        """None once the script has its word, else what the engine complained of."""
        try:
            process = self._engine.begin(command)
        except OSError as error:  # the engine's program is not there
            raise NotMade("cannot start the container: %s: %s" % (type(error).__name__, error)) from None
        looked = time.monotonic()
        while True:
            if os.path.exists(self._run.cancel):
                finish(process)
                raise CancelledFirst
            if self._give(word):
                finish(process)
                return None
            code = process.poll()
            if code:
                return finish(process) or "exit code %d" % code
            if code == 0 and time.monotonic() > looked + 0.2:
                looked = time.monotonic()
                self._look_inside()
            time.sleep(0.001 if code is None else 0.005)

    def _give(self, word: bytes) -> bool:
        """The word, if the shell inside is listening. What is noted first is what counts should we die now."""
        run = self._run
        try:
            door = os.open(run.word, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        failpoint("before-word")
        try:
            self.facts = dict(launch_facts(), pid=None, start=None, engine=self._engine.mark())
            spare_room(run, lambda: write_note(run.starting, self.facts))
            failpoint("word")
            os.set_blocking(door, True)
            while word:
                word = word[os.write(door, word) :]
        except BrokenPipeError:
            os.unlink(run.starting)
            raise NotStarted("the container ended before the script could start") from None
        finally:
            os.close(door)
        failpoint("after-word")
        promote(run)
        close_door(run)
        return True

    def _look_inside(self) -> None:
        """Raise NotStarted if nobody will ever listen."""
        state = self._engine.inspect()
        if state["status"] == "missing":
            raise NotStarted("the container was removed before the script could start")
        if state["status"] not in ("exited", "dead"):
            return  # slow, or the engine has died meanwhile and the container has not
        command = self._spec["commands"][-1]["argv"][0]
        image, user = self._spec["container"]["image"], self._spec["container"].get("user")
        if state["code"] == NO_COMMAND:
            raise NotStarted(**unstarted(_NO_PROGRAM % (image, command), None, UNFIT))
        if state["code"] == NO_LIBC:
            raise NotStarted(**misfit(self._engine, image, self._spec["container"]["libc"]))
        if state["code"] == NO_LOG:
            raise NotStarted(**unstarted(_NO_LOG % user, None, MOUNTS))
        words = "the container ended before the script could start: exit code %d %s"
        raise NotStarted((words % (state["code"], state["error"])).rstrip())

    def _pull(self) -> None:
        """Fetch the image, or raise NotStarted. What the engine tells of it goes to build.log."""
        run, container = self._run, self._spec["container"]
        write_note(run.pull, {"image": container["image"], "time": time.time()})
        env: Dict[str, str] = {}
        try:
            if container.get("registry") and self._password:
                env, complaint = self._engine.log_in(self._password)
                if complaint:
                    raise NotStarted(**explain_pull(complaint, container))
            self._pull_with(env)
        finally:
            forget_login(self._engine.name)

    def _pull_with(self, env: Dict[str, str]) -> None:
        run, container = self._run, self._spec["container"]
        with open(run.build_log, "ab") as file:
            begun = file.tell()
            words = [container["program"], "pull", container["image"]]
            process = self._engine.begin(words, stdout=file, stderr=file, env=env)
        failpoint("pulling")
        while process.poll() is None:
            if os.path.exists(run.cancel):
                process.kill()
                process.wait()
                raise CancelledFirst
            time.sleep(0.02)
        if process.returncode:
            with open(run.build_log, "rb") as file:
                file.seek(begun)
                raise NotStarted(**explain_pull(file.read(65536).decode("utf-8", "replace"), container))


def word_text(secrets: Dict[str, str]) -> bytes:
    """What the shell inside reads: the secrets, then that it may go."""
    lines = []
    for name, value in secrets.items():
        if not (name.isidentifier() and name.isascii()):
            raise ValueError("invalid secret name %s: use letters, digits, and _ only" % name)
        lines.append("export %s='%s'\n" % (name, value.replace("'", "'\\''")))
    return encode("".join(lines) + "MLW_WORD=go\n")
