"""The inventory, asked in a process of its own.

A driver in trouble can hang whoever asks it, and NVML takes memory that a supervisor which waits need not hold.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from ..shared import machine
from ..shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

PATIENCE = 30.0  # seconds; a driver that nobody uses is loaded first, which takes some


def look(patience: float = PATIENCE) -> Dict[str, Any]:
    """What ``inventory.look`` tells; a driver that does not answer is a problem like others."""
    read, write = os.pipe()
    pid = machine.fork(lambda: _tell(write), keep=[write])
    os.close(write)
    text = _read(read, time.monotonic() + patience)
    os.close(read)
    if text is None:
        machine.kill(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0 if text is not None else os.WNOHANG)
    except ChildProcessError:
        pass  # somebody reaps all children of ours
    if text is None:
        return nothing("the driver did not respond within %g s" % patience)
    try:
        found = parse_json(text)
        return found if isinstance(found["gpus"], list) else nothing("the driver returned an invalid response")
    except (ValueError, KeyError, TypeError):
        return nothing("the driver could not be queried")


def nothing(problem: Optional[str]) -> Dict[str, Any]:
    return {"driver": None, "cuda": None, "source": None, "problem": problem, "gpus": []}


def _tell(write: int) -> None:
    from .inventory import look as look_here  # noqa: PLC0415 - only here, where it goes with the process

    data = json.dumps(look_here()).encode("ascii")
    while data:
        data = data[os.write(write, data) :]


def _read(read: int, deadline: float) -> Optional[bytes]:
    data = b""
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(read, 65536)
        if not part:
            return data
        data += part
