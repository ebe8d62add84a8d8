"""Processes that outlive whoever started them: supervisors, builders of environments."""

from __future__ import annotations

import json
import os
import signal

from .journal import log
from .shared import machine
from .shared.layout import RunFolder
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Answer = Dict[str, Any]
    Body = Callable[[Callable[[Answer], None]], None]  # is given a function that answers the caller, once


def leave_behind(run: RunFolder, body: Body) -> Answer:
    """Run ``body`` in a process of its own; wait only for the one answer that it gives."""
    if not machine.FORKS:  # Windows: this process stays and supervises; the caller reads the answer and goes
        stay(run, body)
    told, tell = os.pipe()
    os.set_inheritable(tell, True)
    machine.fork(lambda: _work(run, body, tell), keep=[tell])
    os.close(tell)
    answer = b""
    while True:
        part = os.read(told, 65536)
        if not part:
            break
        answer += part
    os.close(told)
    return parse_json(answer) if answer else {"ok": False, "problem": "the supervisor died immediately"}


def stay(run: RunFolder, body: Body) -> None:
    """Run ``body`` in this very process, which ends with it. Its answer is the last thing on standard output."""
    _work(run, body, os.dup(1))
    raise SystemExit(0)


def _work(run: RunFolder, body: Body, tell: int) -> None:
    """The process that stays."""
    signal.set_wakeup_fd(-1)  # a conductor's, from whom we may come, is closed here, and its number free for others
    if machine.FORKS:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _quiet(run)
    answered = []

    def answer(data: Answer) -> None:
        answered.append(data)
        try:
            os.write(tell, json.dumps(data).encode("ascii"))
        except BrokenPipeError:
            pass  # the caller has died; the run goes on
        os.close(tell)

    try:
        machine.become_reaper()
        body(answer)
    except BaseException:  # noqa: BLE001 - the last stop of a process nobody sees: say what happened
        import traceback  # noqa: PLC0415 - loads much, and is needed by bugs only

        log(traceback.format_exc())
        if not answered:
            answer({"ok": False, "problem": traceback.format_exc(limit=1).strip().splitlines()[-1]})
        raise SystemExit(70)


def _quiet(run: RunFolder) -> None:
    """No terminal, no pipe of the caller, no working folder that could be in somebody's way."""
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        errors = os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        errors = nothing
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(errors, 2)
