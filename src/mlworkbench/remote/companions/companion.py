"""Base class of companions, each of which watches one aspect of a run: metrics, GPUs, or Spark.

The supervisor calls the methods in the order of their declaration. Once the script has started,
exceptions in a companion are only logged. They affect its own results, never the run's outcome.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from ..script_files import ScriptFiles
    from ..shared.failure import Failure, Reason
    from ..work import Work

    Facts = Optional[Dict[str, Any]]


class Companion:
    """A companion for one run. The default methods do nothing."""

    task = ""  # used in the log message "stopped TASK: REASON"

    def prepare(self) -> None:
        """Prepare for the start of the run. An exception prevents the run from starting."""

    def tick(self, facts: Facts) -> None:
        """Check the run.

        This is called several times a second during the run. ``facts`` is None before the script has
        started.
        """

    def end_leftovers(self, work: Work, facts: Facts) -> None:
        """End processes that must not outlive the main process, which has already ended."""

    def end(self, facts: Facts) -> None:
        """Process the remaining data after the script has ended, even if ``tick`` failed earlier."""

    def describe_files(self, files: ScriptFiles) -> None:
        """Add what is known about files of the script, after ``end`` and before its outputs are listed."""

    def explain(self, ending: str, reason: Optional[Reason], ended: Dict[str, Any]) -> Tuple[str, Optional[Reason]]:
        """Return the ending and reason, refined by this companion's observations.

        ``ended`` contains the exit status.
        """
        return ending, reason

    def evidence(self, verdict: Facts, started: bool, ending: str, failure: Optional[Failure]) -> Facts:
        """Return the GPU verdict, completed by this companion's observations.

        None means that no GPUs were involved.
        """
        return verdict
