"""Named points where tests kill or delay the program, or raise an exception.

The format is ``MLW_FAILPOINT=<stage>[@attempt]:<kill|exc|sleep=n>[:nth]``. Without this variable, the
points are inactive. The variable applies to both client and supervisor.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict

_passed: Dict[str, int] = {}
_attempt = 1


class FailPoint(RuntimeError):
    """The fault that a test requested."""


def failpoint(stage: str) -> None:
    setting = os.environ.get("MLW_FAILPOINT")
    if not setting:
        return
    for entry in setting.split(","):
        fields = entry.split(":")
        name, _, attempt = fields[0].partition("@")
        if name == stage and attempt in ("", str(_attempt)):
            _passed[stage] = _passed.get(stage, 0) + 1
            if len(fields) < 3 or int(fields[2]) == _passed[stage]:
                _fail(stage, fields[1])


def enter_attempt(number: int) -> None:
    """Set the number of the attempt for this process and the processes that it forks."""
    global _attempt
    _attempt = number


def _fail(stage: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.startswith("sleep="):
        time.sleep(float(action[6:]))
    else:
        raise FailPoint("asked for at " + stage)
