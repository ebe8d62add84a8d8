"""Why an attempt ended, as far as it decides whether another one follows."""

from __future__ import annotations

from . import run_endings

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional

FAILED, OUT_OF_MEMORY, LOST, USAGE_ERROR = "failed", "oom", "lost", "usage-error"
PREEMPTED, NODE_FAILURE = "preempted", "node-failure"  # only schedulers report these
CAUSES = (FAILED, OUT_OF_MEMORY, LOST, PREEMPTED, NODE_FAILURE, USAGE_ERROR)
DEFAULT_CAUSES = (FAILED, LOST, PREEMPTED, NODE_FAILURE)
MAX_RETRIES = 1000
MAX_DELAY = 600.0  # seconds

_USAGE_CODE = 2  # exit code of argparse and of shells for wrong arguments, which another attempt cannot correct
_BY_ENDING = {
    run_endings.OUT_OF_MEMORY: OUT_OF_MEMORY,
    run_endings.EXIT_UNKNOWN: LOST,
    run_endings.ENGINE_STOPPED: LOST,
}


def retry_cause(ending: str, code: Optional[int]) -> Optional[str]:
    """Return the cause for an ending, or None if no attempt ever follows it."""
    if ending == run_endings.FAILED:
        return USAGE_ERROR if code == _USAGE_CODE else FAILED
    return _BY_ENDING.get(ending)
