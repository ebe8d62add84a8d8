"""Run a script in a container: the launcher, and ``Work`` for the supervisor.

The counterpart for runs without a container is ``process_work.py``.

The engine creates and starts the container. A small shell inside waits for the start signal, which
also carries the secrets, and then replaces itself with the user's command. Whichever process holds
the lock ``watch`` watches the container: the launcher or, if that is killed, a watcher that the
supervisor starts. A container is created only once, and does nothing without the start signal.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

from .bind_mounts import MountRefused, check_mounts, make_folder, refuse_writable, translate
from .container_watcher import (
    close_start_fifo,
    interpret_exit,
    reap_children,
    record_not_started,
    remove_container_marker,
    remove_if_owned,
    remove_with_retries,
    resume_watch,
    watch_to_end,
)
from .engine import (
    NO_COMMAND,
    NO_LIBC,
    NO_LOG,
    Engine,
    is_missing_image,
    is_refused,
    list_mounts,
    remove_login,
    run_command,
    wait_for_exit,
)
from .engine_errors import MOUNTS, UNFIT, explain_pull, explain_start, missing_image, start_failure
from .image_facts import explain_libc_mismatch
from .journal import write_with_reserve
from .launcher import decide_start, encode_argument, launch_facts, prepare_launcher_process
from .markers import confirm_started, is_alive, read_start_decision, read_started
from .process_work import RUNNING
from .run_lock import acquire_lock
from .shared import machine
from .shared.atomic_files import read_json, write_unsynced
from .shared.containers import REGISTRY_PASSWORD, SHARE
from .shared.failpoint import failpoint
from .shared.failure import Failed
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, Union

    from .run_spec import Spec

    Facts = Optional[Dict[str, Any]]

_NO_PROGRAM = "image %s has no program %s, or it is not executable"
_NO_LOG = "user %s cannot write the log from inside the container"


class ContainerWork:
    """``Work`` implementation for a run in a container."""

    def __init__(self, run: RunFolder, spec: Spec) -> None:
        self._run = run
        self._spec = spec
        self._engine = Engine(spec["container"])
        self._launcher: Tuple[Optional[int], Optional[int]] = (None, None)
        self._step_reported = False
        self._next_watcher = 0.0

    def prepare(self) -> None:
        """Create mlw's own folders that will be mounted.

        Folders that the user specified must already exist, so that a misspelled path is not created.
        """
        if sys.platform != "linux":
            # On other systems, the engine runs in a virtual machine, which cannot read the FIFO for the start signal.
            raise OSError("containers are supported on Linux only")
        root = os.path.dirname(os.path.dirname(self._run.path))
        container = self._spec["container"]
        for source, target, _ in container.get("mounts") or ():
            if source == self._run.passwd:
                self._write_passwd()
            elif source.startswith(root + os.sep) or target.rstrip("/") == SHARE.rstrip("/"):
                try:
                    make_folder(translate(source, container.get("resolved") or ()))
                except MountRefused as error:
                    raise OSError(str(error)) from None

    def _write_passwd(self) -> None:
        """Write a passwd file for the container, because images do not contain the users of this machine."""
        container = self._spec["container"]
        environment = container.get("environment") or {}
        name, home = environment.get("USER") or "user", environment.get("HOME") or "/"
        with open(self._run.passwd, "w", encoding="utf-8") as file:
            file.write("root:x:0:0:root:/root:/bin/sh\n%s:x:%s::%s:/bin/sh\n" % (name, container["user"], home))
        os.chmod(self._run.passwd, 0o644)  # the container's user reads it

    def start(self, secrets: Dict[str, str], umask: int, keep: List[int]) -> None:
        """Start the launcher process, which decides whether the container is started.

        It inherits the file descriptors in ``keep``.
        """
        pid = machine.fork(lambda: launch(self._run, self._spec, secrets, umask), keep)
        self._launcher = (pid, machine.start_time(pid))

    def is_launching(self) -> bool:
        """Return whether a launcher that this supervisor started is alive."""
        return is_alive(self._launcher)

    def step(self) -> Facts:
        """Return the data of a step event while the image is being pulled."""
        if self._step_reported or not os.path.exists(self._run.pull):
            return None
        self._step_reported = True
        return {"step": "image", "image": self._spec["container"]["image"]}

    def reap(self) -> None:
        """Reap child processes, which are the launcher and watchers."""
        reap_children()

    def started(self) -> Facts:
        return read_started(self._run)

    def find_unrecorded_exit(self) -> Facts:
        """Start a watcher if no process watches the container. The watcher records the exit status."""
        decision = read_start_decision(self._run)
        if decision and not machine.is_locked(self._run.watcher_lock) and time.monotonic() >= self._next_watcher:
            self._next_watcher = time.monotonic() + 1.0
            machine.fork(lambda: resume_watch(self._run, self._spec))
        return None

    def after_restart(self, rebooted: bool, waiting: Callable[[], None]) -> Union[str, Facts]:
        """Return RUNNING, the exit status from the engine, or None if the restart ended the script.

        If the target itself is a container that was restarted, the engine outside it kept the run's
        container running, so wait for that container. No container survives a reboot.
        """
        state = self._engine.inspect()
        while state["status"] == "down" and not rebooted and not os.path.exists(self._run.cancel):
            waiting()
            time.sleep(1.0)
            state = self._engine.inspect()
        if state["status"] not in ("exited", "dead", "stopped") or state.get("owner") != self._run.path:
            is_running = state["status"] in ("running", "paused", "restarting")
            return RUNNING if is_running and state.get("owner") == self._run.path else None
        result = interpret_exit(state, self._engine, True)
        if result.get("stopped") or result["signal"] is not None:
            return None
        return dict(result, ended=time.time(), elapsed=None)

    def living_processes(self, facts: Facts) -> List[Tuple[int, int]]:
        """Return an empty result: when the main process exits, the engine ends all other processes."""
        return []

    def terminate(self, facts: Facts) -> None:
        self._signal(signal.SIGTERM)

    def kill(self, facts: Facts) -> None:
        self._signal(signal.SIGKILL)

    def abandon(self, facts: Facts) -> None:
        """Kill the container of this attempt. That of a newer attempt has the same name, but another process."""
        recorded = (read_json(self._run.container_process) or {}).get("pid")
        if recorded and self._engine.inspect().get("pid") == recorded:
            self._engine.signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._engine.inspect()["status"] in ("exited", "created", "missing"):
            return  # before the start, the launcher handles a cancel; after the exit, no process is left
        if not self._engine.signal(number):
            # The engine is down: signal the processes that belong to this user.
            machine.signal_all(machine.find_processes(self._run.path, [os.getpid()], []), number)

    def clean_up(self) -> None:
        """Remove any remaining container before the end is recorded, if the engine responds."""
        deadline = time.monotonic() + 20.0
        while os.path.exists(self._run.container) and time.monotonic() < deadline:
            if not machine.is_locked(self._run.watcher_lock):
                remove_if_owned(self._engine, self._run)
                return
            time.sleep(0.005)


# -- the launcher ------------------------------------------------------------------------------------------------


def launch(run: RunFolder, spec: Spec, secrets: Dict[str, str], umask: int) -> None:
    """Run the launcher process."""
    prepare_launcher_process()
    lock = acquire_lock(run.watcher_lock)
    failpoint("before-gate")
    if lock is None or not decide_start(run, "start"):
        return
    failpoint("after-gate")
    engine = Engine(spec["container"])
    container_start = _ContainerStart(run, spec, engine, secrets)
    problem, canceled = None, False
    try:
        container_start.start(umask)
    except NotStarted as error:
        problem, canceled = error.failure, isinstance(error, CanceledBeforeStart)
        if isinstance(error, NotCreated):
            remove_container_marker(run)
    except (OSError, ValueError, KeyError, TypeError) as unexpected:
        problem = start_failure("cannot start the container: %s: %s" % (type(unexpected).__name__, unexpected))
    if problem is not None:
        close_start_fifo(run)
        record_not_started(run, problem, canceled)
        if os.path.exists(run.container):
            remove_with_retries(engine, run, remove_if_owned)
        return
    failpoint("after-start")
    watch_to_end(engine, run, container_start.facts)


class NotStarted(Failed):
    """Error for a script that was not started."""

    code = explain = "could-not-start"


class CanceledBeforeStart(NotStarted):
    """Error for a run that was canceled before the script started."""

    def __init__(self) -> None:
        super().__init__("canceled before it started", code="cancelled")


class NotCreated(NotStarted):
    """Error for a script that was not started and has no container to remove."""


class _ContainerStart:
    """The start of a script: one engine call, then the start signal once the shell listens."""

    def __init__(self, run: RunFolder, spec: Spec, engine: Engine, secrets: Dict[str, str]) -> None:
        self.facts: Dict[str, Any] = {}
        self._run = run
        self._spec = spec
        self._engine = engine
        self._secrets = dict(secrets)
        self._password = self._secrets.pop(REGISTRY_PASSWORD, "")

    def start(self, umask: int) -> None:
        """Start the script, or raise NotStarted."""
        run, container = self._run, self._spec["container"]
        payload = start_payload(self._secrets)
        os.close(os.open(run.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        os.mkfifo(run.start_fifo, 0o600)
        write_with_reserve(
            run, lambda: write_unsynced(run.container, {"name": container["name"], "engine": container["engine"]})
        )
        error_text = self._run_container(self._command(umask), payload)
        if error_text and is_missing_image(error_text):
            if not container.get("pull", True):
                raise NotStarted(**missing_image(container["image"]))
            self._pull_image()
            error_text = self._run_container(self._command(umask), payload)
        if error_text:
            kind = NotCreated if is_refused(error_text) else NotStarted
            raise kind(**explain_start(error_text, container))

    def _command(self, umask: int) -> List[str]:
        """Check the mounts one last time and return the engine command."""
        container = self._spec["container"]
        all_mounts = list_mounts(container, self._run)
        runs = os.path.dirname(self._run.path)
        root = translate(os.path.dirname(runs), container.get("resolved") or ())
        try:
            inner = check_mounts(all_mounts, container.get("socket"))
            outside = [source for source, _, _ in all_mounts if not source.startswith(root + os.sep)]
            refuse_writable(outside, runs, self._run.path)
        except MountRefused as error:
            raise NotStarted(**error.failure) from None
        mounts_option = [*(container.get("mounts") or ()), *inner]
        return run_command(dict(self._spec, container=dict(container, mounts=mounts_option)), self._run, umask)

    def _run_container(self, command: List[str], payload: bytes) -> Optional[str]:
        """Return None once the start signal has been sent, or the engine's error message."""
        try:
            process = self._engine.start_process(command)
        except OSError as error:  # the engine's program does not exist
            raise NotCreated("cannot start the container: %s: %s" % (type(error).__name__, error)) from None
        checked_at = time.monotonic()
        while True:
            if os.path.exists(self._run.cancel):
                wait_for_exit(process)
                raise CanceledBeforeStart
            if self._send_start_signal(payload):
                wait_for_exit(process)
                return None
            code = process.poll()
            if code:
                return wait_for_exit(process) or "exit code %d" % code
            if code == 0 and time.monotonic() > checked_at + 0.2:
                checked_at = time.monotonic()
                self._check_container()
            time.sleep(0.001 if code is None else 0.005)

    def _send_start_signal(self, payload: bytes) -> bool:
        """Send the start signal if the shell is listening.

        The ``starting`` marker is written first, so that a watcher finds it if this process dies.
        """
        run = self._run
        try:
            fifo = os.open(run.start_fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        failpoint("before-word")
        try:
            self.facts = dict(launch_facts(), pid=None, start=None, engine=self._engine.identity())
            write_with_reserve(run, lambda: write_unsynced(run.starting, self.facts))
            failpoint("word")
            os.set_blocking(fifo, True)
            while payload:
                payload = payload[os.write(fifo, payload) :]
        except BrokenPipeError:
            os.unlink(run.starting)
            raise NotStarted("the container ended before the script could start") from None
        finally:
            os.close(fifo)
        failpoint("after-word")
        confirm_started(run)
        close_start_fifo(run)
        return True

    def _check_container(self) -> None:
        """Raise NotStarted if the shell in the container will never listen."""
        state = self._engine.inspect()
        if state["status"] == "missing":
            raise NotStarted("the container was removed before the script could start")
        if state["status"] not in ("exited", "dead"):
            return  # the start is slow, or the engine is down while the container still runs
        command = self._spec["commands"][-1]["argv"][0]
        image, user = self._spec["container"]["image"], self._spec["container"].get("user")
        if state["code"] == NO_COMMAND:
            raise NotStarted(**start_failure(_NO_PROGRAM % (image, command), None, UNFIT))
        if state["code"] == NO_LIBC:
            raise NotStarted(**explain_libc_mismatch(self._engine, image, self._spec["container"]["libc"]))
        if state["code"] == NO_LOG:
            raise NotStarted(**start_failure(_NO_LOG % user, None, MOUNTS))
        message = "the container ended before the script could start: exit code %d %s"
        raise NotStarted((message % (state["code"], state["error"])).rstrip())

    def _pull_image(self) -> None:
        """Pull the image, or raise NotStarted. The engine's output is written to build.log."""
        run, container = self._run, self._spec["container"]
        write_unsynced(run.pull, {"image": container["image"], "time": time.time()})
        env: Dict[str, str] = {}
        try:
            if container.get("registry") and self._password:
                env, error_text = self._engine.log_in(self._password)
                if error_text:
                    raise NotStarted(**explain_pull(error_text, container))
            self._run_pull(env)
        finally:
            remove_login(self._engine.name)

    def _run_pull(self, env: Dict[str, str]) -> None:
        run, container = self._run, self._spec["container"]
        with open(run.build_log, "ab") as file:
            offset = file.tell()
            arguments = [container["program"], "pull", container["image"]]
            process = self._engine.start_process(arguments, stdout=file, stderr=file, env=env)
        failpoint("pulling")
        while process.poll() is None:
            if os.path.exists(run.cancel):
                process.kill()
                process.wait()
                raise CanceledBeforeStart
            time.sleep(0.02)
        if process.returncode:
            with open(run.build_log, "rb") as file:
                file.seek(offset)
                raise NotStarted(**explain_pull(file.read(65536).decode("utf-8", "replace"), container))


def start_payload(secrets: Dict[str, str]) -> bytes:
    """Return the input for the shell in the container: the secrets, then the permission to start."""
    lines = []
    for name, value in secrets.items():
        if not (name.isidentifier() and name.isascii()):
            raise ValueError("invalid secret name %s: use letters, digits, and _ only" % name)
        lines.append("export %s='%s'\n" % (name, value.replace("'", "'\\''")))
    return encode_argument("".join(lines) + "MLW_WORD=go\n")
