"""Start processes that outlive their parent, such as supervisors and environment builders."""

from __future__ import annotations

import json
import os
import signal

from .journal import log
from .shared import machine
from .shared.layout import RunFolder
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Message = Dict[str, Any]
    Body = Callable[[Callable[[Message], None]], None]  # its argument sends the response and is called once


def run_in_background(run: RunFolder, body: Body) -> Message:
    """Run ``body`` in a new process and wait only for its response."""
    if not machine.CAN_FORK:  # Windows: this process becomes the supervisor; the caller reads the response and exits
        run_in_this_process(run, body)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    machine.fork(lambda: _run_body(run, body, writer), keep=[writer])
    os.close(writer)
    response = b""
    while True:
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        response += chunk
    os.close(reader)
    return parse_json(response) if response else {"ok": False, "problem": "the supervisor died immediately"}


def run_in_this_process(run: RunFolder, body: Body) -> None:
    """Run ``body`` in this process, then exit. Its response is the last output to stdout."""
    _run_body(run, body, os.dup(1))
    raise SystemExit(0)


def _run_body(run: RunFolder, body: Body, writer: int) -> None:
    """Run ``body`` as the main function of the background process."""
    # If a supervisor started this process, the fork closed its wakeup descriptor, and the number may be reused.
    signal.set_wakeup_fd(-1)
    if machine.CAN_FORK:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _detach_streams(run)
    responses = []

    def respond(data: Message) -> None:
        responses.append(data)
        try:
            os.write(writer, json.dumps(data).encode("ascii"))
        except BrokenPipeError:
            pass  # the caller has died; the run continues
        os.close(writer)

    try:
        machine.become_reaper()
        body(respond)
    except BaseException:  # noqa: BLE001 - last resort of a background process: log the error
        import traceback  # noqa: PLC0415 - large, and only needed for bugs

        log(traceback.format_exc())
        if not responses:
            respond({"ok": False, "problem": traceback.format_exc(limit=1).strip().splitlines()[-1]})
        raise SystemExit(70)


def _detach_streams(run: RunFolder) -> None:
    """Detach from the caller's terminal, pipes, and working folder."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    try:
        log_file = os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        log_file = null
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(log_file, 2)
