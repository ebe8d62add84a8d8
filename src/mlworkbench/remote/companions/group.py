"""All companions of a run. A failing companion affects neither the others nor the supervisor."""

from __future__ import annotations

from ..journal import log
from ..run_spec import companion_settings
from .external_metrics_monitor import ExternalMetricsMonitor
from .gpu_monitor import GpuMonitor
from .package_recorder import PackageRecorder
from .usage_monitor import UsageMonitor

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from ..journal import Journal
    from ..run_spec import Spec
    from ..script_files import ScriptFiles
    from ..shared.failure import Failure, Reason
    from ..shared.layout import RunFolder
    from ..work import Work
    from .companion import Companion

    Facts = Optional[Dict[str, Any]]


class CompanionGroup:
    """The companions of one run. Each receives the GPU verdict of the previous ones."""

    def __init__(self, members: List[Companion]) -> None:
        self._members = members
        self._ticking = list(members)

    def prepare(self) -> None:
        for companion in self._members:
            companion.prepare()

    def tick(self, facts: Facts) -> None:
        for companion in tuple(self._ticking):
            try:
                companion.tick(facts)
            except Exception as error:  # noqa: BLE001 - companions parse data from scripts, drivers, and kernels
                self._ticking.remove(companion)
                _log_failure(companion, error)

    def end_leftovers(self, work: Work, facts: Facts) -> None:
        for companion in self._members:
            try:
                companion.end_leftovers(work, facts)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)

    def end(self, facts: Facts) -> None:
        for companion in self._members:
            try:
                companion.end(facts)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)

    def describe_files(self, files: ScriptFiles) -> None:
        for companion in self._members:
            try:
                companion.describe_files(files)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)

    def explain(self, ending: str, reason: Optional[Reason], ended: Dict[str, Any]) -> Tuple[str, Optional[Reason]]:
        """Return the ending and reason, refined by each companion in turn."""
        for companion in self._members:
            try:
                ending, reason = companion.explain(ending, reason, ended)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)
        return ending, reason

    def verdict(self, started: bool, ending: str, failure: Optional[Failure]) -> Facts:
        """Return the GPU verdict, combined from the evidence of all companions."""
        verdict: Facts = None
        for companion in self._members:
            try:
                verdict = companion.evidence(verdict, started, ending, failure)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)
        return verdict


def _log_failure(companion: Companion, error: Exception) -> None:
    log("stopped %s: %s: %s" % (companion.task, type(error).__name__, error))


def make_companions(run: RunFolder, spec: Spec, journal: Journal, mask: Callable[[str], str]) -> CompanionGroup:
    """Create the companions of a run. ``mask`` removes secrets from a string."""
    members: List[Companion] = [GpuMonitor(run, spec, journal), UsageMonitor(run)]
    if companion_settings(spec, "spark") is not None:
        from .spark_monitor import SparkMonitor  # noqa: PLC0415 - only for Spark runs

        members.append(SparkMonitor(run, spec, journal, mask))
    members += [ExternalMetricsMonitor(run, spec), PackageRecorder(run, spec)]
    return CompanionGroup(members)
