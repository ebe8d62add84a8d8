"""A named place where a test may kill, stop or delay the program: ``MLW_FAILPOINT=<stage>:<kill|exc|sleep=n>[:nth]``.

Inert unless the variable is set. One place in the environment serves client and supervisor alike.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict

_passed: Dict[str, int] = {}


class FailPoint(RuntimeError):
    """The fault that a test asked for."""


def failpoint(stage: str) -> None:
    setting = os.environ.get("MLW_FAILPOINT")
    if not setting:
        return
    for one in setting.split(","):
        words = one.split(":")
        if words[0] == stage:
            _passed[stage] = _passed.get(stage, 0) + 1
            if len(words) < 3 or int(words[2]) == _passed[stage]:
                _fail(stage, words[1])


def _fail(stage: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.startswith("sleep="):
        time.sleep(float(action[6:]))
    else:
        raise FailPoint("asked for at " + stage)
