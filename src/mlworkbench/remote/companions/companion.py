"""The companion of a run: watches it for one purpose, such as metrics, GPUs, or a Spark application.

The supervisor calls the methods in the order in which they are declared. From the start of the
script on, what a companion raises is logged and costs its own results only: never the run, never its ending.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from ..shared.failure import Failure, Reason
    from ..work import Work

    Facts = Optional[Dict[str, Any]]


class Companion:
    """One run's companion. Whatever a subclass leaves out does nothing."""

    task = ""  # what it does, as in "stopped TASK: the reason"

    def prepare(self) -> None:
        """Make what must be there before the start. What it raises keeps the run from starting."""

    def tick(self, facts: Facts) -> None:
        """Look, while the run lasts. Called several times a second; ``facts`` is None before the script has started."""

    def sweep(self, work: Work, facts: Facts) -> None:
        """End what must not outlive the main process, which has ended."""

    def end(self, facts: Facts) -> None:
        """Take in the rest: the script has ended. Called also where ``tick`` has failed before."""

    def explain(self, ending: str, reason: Optional[Reason], ended: Dict[str, Any]) -> Tuple[str, Optional[Reason]]:
        """Ending and reason, better than those given where this companion has seen more. ``ended``: exit status."""
        return ending, reason

    def evidence(self, verdict: Facts, started: bool, ending: str, failure: Optional[Failure]) -> Facts:
        """The GPU verdict so far, completed with what this companion has seen; None: GPUs played no part."""
        return verdict
