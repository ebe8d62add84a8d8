"""All companions of a run, as its supervisor calls them: one that fails stops no other, and not the supervisor."""

from __future__ import annotations

from ..journal import log
from ..run_spec import companion_settings
from .gpu_monitor import GpuMonitor
from .tracking import Tracking
from .usage import Usage

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from ..journal import Journal
    from ..run_spec import Spec
    from ..shared.failure import Failure, Reason
    from ..shared.layout import RunFolder
    from ..work import Work
    from .companion import Companion

    Facts = Optional[Dict[str, Any]]


class Companions:
    """The companions of one run. Each gets the GPU verdict of those before it."""

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
            except Exception as error:  # noqa: BLE001 - it reads what scripts, drivers and kernels write: anything
                self._ticking.remove(companion)
                _log_failure(companion, error)

    def sweep(self, work: Work, facts: Facts) -> None:
        for companion in self._members:
            try:
                companion.sweep(work, facts)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)

    def end(self, facts: Facts) -> None:
        for companion in self._members:
            try:
                companion.end(facts)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)

    def explain(self, ending: str, reason: Optional[Reason], ended: Dict[str, Any]) -> Tuple[str, Optional[Reason]]:
        """How the run ended and why, by all that is known."""
        for companion in self._members:
            try:
                ending, reason = companion.explain(ending, reason, ended)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)
        return ending, reason

    def verdict(self, started: bool, ending: str, failure: Optional[Failure]) -> Facts:
        """The GPU verdict, folded from the evidence of all."""
        verdict: Facts = None
        for companion in self._members:
            try:
                verdict = companion.evidence(verdict, started, ending, failure)
            except Exception as error:  # noqa: BLE001 - as above
                _log_failure(companion, error)
        return verdict


def _log_failure(companion: Companion, error: Exception) -> None:
    log("stopped %s: %s: %s" % (companion.task, type(error).__name__, error))


def companions_of(run: RunFolder, spec: Spec, journal: Journal, mask: Callable[[str], str]) -> Companions:
    """The companions that a run asks for. ``mask`` removes secrets from a text."""
    members: List[Companion] = [GpuMonitor(run, spec, journal), Usage(run)]
    if companion_settings(spec, "spark") is not None:
        from .spark import Spark  # noqa: PLC0415 - what other runs need not hold

        members.append(Spark(run, spec, journal, mask))
    members.append(Tracking(run, spec))
    return Companions(members)
