"""The allocation of a scheduler in which this process runs. Most supervisors run outside of any.

A supervisor that a scheduler started enters its allocation once. The processes that it forks inherit it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from .shared.failure import Reason

SCHEDULER = "scheduler"  # why a run is stopped: the scheduler ends its job


class Allocation:
    """No allocation, and the base class of those of schedulers."""

    facts: Dict[str, Any] = {}  # recorded with each claim
    gpus = 0  # on this machine, for this run only
    environment: Optional[Dict[str, str]] = None  # all variables of the job, which the script inherits

    def stop_reason(self) -> Optional[str]:
        """Return why the script must be stopped now: "timeout" at the time limit, SCHEDULER, or None."""
        return None

    def limit_reason(self) -> str:
        """Return the reason of a run that was stopped because of the allocation's time limit."""
        return "stopped at the time limit"

    def interruption(self) -> Optional[Tuple[str, Reason]]:
        """Return the ending of a run whose job the scheduler ends, and the reason.

        Return None if the run does not end: another execution of the job follows, or the cause is not known.
        """
        return None


_current = Allocation()


def enter(allocation: Allocation) -> None:
    """Set the allocation of this process and of those that it forks."""
    global _current
    _current = allocation


def current() -> Allocation:
    return _current
