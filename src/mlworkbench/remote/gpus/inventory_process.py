"""Query the GPU inventory in a separate process.

A failing driver can block its caller, and NVML needs memory that a waiting supervisor should not hold.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from ..shared import gpu_problems, machine
from ..shared.untrusted_json import parse_json

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

TIMEOUT = 30.0  # seconds; initializing an idle driver takes several seconds


def query_gpus(timeout: float = TIMEOUT) -> Dict[str, Any]:
    """Return the same data as ``gpu_inventory.query_gpus``.

    A driver that does not respond is reported as a problem.
    """
    read, write = os.pipe()
    pid = machine.fork(lambda: _send_inventory(write), keep=[write])
    os.close(write)
    text = _read_until(read, time.monotonic() + timeout)
    os.close(read)
    if text is None:
        machine.kill(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0 if text is not None else os.WNOHANG)
    except ChildProcessError:
        pass  # a SIGCHLD handler has already reaped it
    if text is None:
        return empty_inventory("the driver did not respond within %g s" % timeout, gpu_problems.NO_RESPONSE)
    try:
        inventory = parse_json(text)
        return (
            inventory
            if isinstance(inventory["gpus"], list)
            else empty_inventory("the driver returned an invalid response")
        )
    except (ValueError, KeyError, TypeError):
        return empty_inventory("the driver could not be queried")


def empty_inventory(problem: Optional[str], code: Optional[str] = None) -> Dict[str, Any]:
    """Return an inventory without GPUs. ``code`` is one of ``gpu_problems``."""
    return {"driver": None, "cuda": None, "source": None, "problem": problem, "problem_code": code, "gpus": []}


def _send_inventory(write: int) -> None:
    from .gpu_inventory import query_gpus as query_directly  # noqa: PLC0415 - child process only

    data = json.dumps(query_directly()).encode("ascii")
    while data:
        data = data[os.write(write, data) :]


def _read_until(read: int, deadline: float) -> Optional[bytes]:
    data = b""
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(read, 65536)
        if not chunk:
            return data
        data += chunk
