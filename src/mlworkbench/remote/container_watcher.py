"""Who watches a container to its end: waits, finds out how it ended, writes it down, removes it.

The launcher does so after the start; should it be killed, the supervisor puts a new process in its place.
"""

from __future__ import annotations

import os
import signal
import time

from .engine import NO_WORD, Engine, forget_login, read_signal
from .journal import log
from .launcher import keep_exit, stand_fast
from .notes import alive, promote, read_exit, read_started, read_starting
from .run_lock import hold
from .shared import machine
from .shared.failpoint import failpoint
from .shared.failure import checked, text_of
from .shared.files import write_note
from .shared.layout import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from .run_spec import Spec
    from .shared.failure import Reason

    Facts = Optional[Dict[str, Any]]

DIED = "the launcher died before the script started"
PATIENCE = 3600.0  # how long we try to remove a container from an engine that is down
NOTICE = 10.0  # how often we look whether the engine is still the same
LOST_TRACK = 255  # what Docker records of a container whose end it did not see
RECENT = 60.0  # an engine gives a container ten seconds or more to end

_UNKNOWN: Dict[str, Any] = {"code": None, "signal": None, "problem": None}


def watch_again(run: RunFolder, spec: Spec) -> None:
    """Body of the process that takes the place of a launcher which was killed."""
    stand_fast()
    held = hold(run.watch)
    if held is None:
        return
    engine = Engine(spec["container"])
    forget_login(engine.name)
    facts = read_started(run) or read_starting(run)
    if read_exit(run) is not None:
        remove_patiently(engine, run, remove_if_ours)
    elif facts is None:  # the word was never given, and now never will be
        close_door(run)
        note_unstarted(run, DIED)
        remove_patiently(engine, run, remove_if_ours)
    else:
        doubtful = os.path.exists(run.word)  # it died between its note and the word, or just after the word
        if not doubtful or _goes_on(engine):
            promote(run)
        _see_out(engine, run, facts, doubtful)


def _goes_on(engine: Engine) -> bool:
    """Without the word the shell inside ends at once; what lives longer is the user's program."""
    patience = time.monotonic() + 2.0
    while time.monotonic() < patience:
        if engine.inspect()["status"] in ("exited", "dead", "missing"):
            return False
        time.sleep(0.2)
    return True


def see_out(engine: Engine, run: RunFolder, facts: Dict[str, Any]) -> None:
    """The launcher's part of it."""
    _see_out(engine, run, facts, False, failpoint)


def _see_out(
    engine: Engine, run: RunFolder, facts: Dict[str, Any], doubtful: bool, point: Callable[[str], None] = lambda _: None
) -> None:
    """Wait for the end, write it down, remove the container. ``point`` names places where a test may kill."""
    ended = _Watch(engine, run, facts).end()
    if ended is None:
        return  # another watcher has written it
    if doubtful and ended["code"] == NO_WORD and not _written(run):
        ended.update(code=None, problem=DIED)
    else:
        promote(run)
    close_door(run)
    point("before-exit")
    keep_exit(run, dict(ended, ended=time.time(), elapsed=time.monotonic() - facts["clock"]))
    point("after-exit")
    remove_patiently(engine, run)


def _written(run: RunFolder) -> bool:
    try:
        return os.stat(run.log).st_size > 0
    except OSError:
        return False


class _Watch:
    """Waits for the end of one container. While the engine is down the container may well go on, and so do we."""

    def __init__(self, engine: Engine, run: RunFolder, facts: Dict[str, Any]) -> None:
        self._engine = engine
        self._run = run
        self._mark = facts.get("engine")
        self._changed: Optional[float] = None

    def end(self) -> Facts:
        """How it ended; None if another watcher has written it down already."""
        seen, pause = False, 0.05
        while True:
            state = self._engine.inspect()
            status = state["status"]
            if status == "down":
                self._notice()
                if seen and os.path.exists(self._run.cancel):
                    return dict(
                        _UNKNOWN, unknown="the engine does not respond, and only the engine has the exit status"
                    )
                time.sleep(pause)
                pause = min(2.0, pause * 2)
            elif status == "missing":
                if read_exit(self._run) is not None:
                    return None
                stopped = "the container was removed (%s rm)" % self._engine.container["engine"]
                return dict(_UNKNOWN, stopped=stopped)
            elif status in ("exited", "dead", "stopped"):
                return read_end(state, self._engine, self._restarted())
            elif status == "created":
                return dict(_UNKNOWN, problem="the engine created the container but never started it")
            else:
                seen, pause = True, 0.05
                self._await(state)

    def _await(self, state: Dict[str, Any]) -> None:
        """Until the container's first process ends, which the kernel tells also while the engine is down."""
        pid = state["pid"]
        start = machine.start_time(pid) if pid else None
        if start is None or not _is_of(pid, state["id"]):  # the engine has another process table than we
            if self._engine.call("wait", self._engine.name, timeout=None)[0]:
                time.sleep(0.2)
            return
        self._tell_inside(pid, start)
        wait, noticed = machine.waiter(pid), time.monotonic()
        while alive((pid, start)):
            wait(NOTICE if hasattr(os, "pidfd_open") else 0.2)
            reap()
            if time.monotonic() >= noticed + NOTICE:
                noticed = time.monotonic()
                self._notice()

    def _tell_inside(self, pid: int, start: int) -> None:
        """For whoever measures what the run does."""
        try:
            write_note(self._run.inside, {"pid": pid, "start": start})
        except OSError:
            pass  # a full disk: it is not measured

    def _notice(self) -> None:
        mark = self._engine.mark()
        if mark != self._mark:
            self._mark, self._changed = mark, time.monotonic()

    def _restarted(self) -> bool:
        """Whether the engine was going or coming when the container ended."""
        self._notice()
        return self._changed is not None and time.monotonic() < self._changed + RECENT


def reap() -> None:
    """What was left to us: podman's monitors, calls of a launcher that was killed."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _is_of(pid: int, container_id: str) -> bool:
    try:
        with open("/proc/%d/cgroup" % pid) as file:
            return container_id in file.read()
    except OSError:
        return False


def read_end(state: Dict[str, Any], engine: Engine, restarted: bool) -> Dict[str, Any]:
    """Code or signal, and whether the engine, or somebody through it, ended what would have gone on."""
    code = state["code"]
    ended: Dict[str, Any] = {"code": code, "signal": None, "problem": None, "oom": state["oom"]}
    ended["limited"] = bool(engine.container.get("memory"))
    if code <= 128:
        return ended
    told = read_signal(code, engine.init_log())
    if told or (told is None and code == 128 + signal.SIGKILL):
        ended.update(code=None, signal=code - 128)
    if state["oom"] or told is False:
        return ended
    if restarted and code in (128 + signal.SIGKILL, 128 + signal.SIGTERM):
        ended["stopped"] = "the engine was stopped or restarted and ended the container"
    elif told is None and code == 128 + signal.SIGKILL and engine.container["engine"] == "docker":
        # Killed from within, its first process would have lived to tell.
        ended["stopped"] = "the container was killed, by 'docker kill' or by the engine"
    elif told is None and code == LOST_TRACK and engine.container["engine"] == "docker":
        ended.update(code=None, stopped="the engine was restarted and found the container dead (Exited (255))")
    return ended


def note_unstarted(run: RunFolder, problem: Reason, cancelled: bool = False) -> None:
    """The script was not started, and never will be."""
    ended: Dict[str, Any] = {"code": None, "signal": None, "problem": text_of(problem), "failure": checked(problem)}
    ended.update(ended=time.time(), elapsed=0.0)
    keep_exit(run, dict(ended, unstarted=True) if cancelled else ended)


def remove_if_ours(engine: Engine, run: RunFolder) -> bool:
    """Where it is not known whether the container was ever made: its name may be that of somebody else's."""
    state = engine.inspect()
    if state["status"] == "down":
        return False
    if state["status"] == "missing" or state["owner"] != run.path:
        forget_container(run)
        return True
    return remove(engine, run)


def remove(engine: Engine, run: RunFolder) -> bool:
    """Whether it is gone."""
    if not engine.remove():
        return False
    forget_container(run)
    return True


def forget_container(run: RunFolder) -> None:
    """There is no container of this run, or none any more."""
    try:
        os.unlink(run.container)
    except OSError:
        pass  # somebody else was quicker, or the run folder is gone


def remove_patiently(engine: Engine, run: RunFolder, how: Callable[[Engine, RunFolder], bool] = remove) -> None:
    patience, pause = time.monotonic() + PATIENCE, 0.1
    while not how(engine, run):
        if time.monotonic() > patience:
            log("container %s could not be removed: the engine does not respond" % engine.name)
            return
        time.sleep(pause)
        pause = min(10.0, pause * 2)


def close_door(run: RunFolder) -> None:
    """The word will not come: whoever waits for it inside learns so and ends."""
    try:
        os.close(os.open(run.word, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        pass  # nobody waits
    try:
        os.unlink(run.word)
    except OSError:
        pass
