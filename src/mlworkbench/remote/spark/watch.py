"""A Spark application as its supervisor sees it: what it tells of itself, what it leaves behind, why it failed."""

from __future__ import annotations

from .. import endings
from ..folder import RunFolder
from ..journal import Journal

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from ..stopping import Work

    Facts = Optional[Dict[str, Any]]


class SparkWatch:
    """Of one run. Nothing that happens here may keep the run from being watched, or its ending from being told."""

    def __init__(self, run: RunFolder, spec: Dict[str, Any], journal: Journal) -> None:
        self._run = run
        self._spec = spec
        self._journal = journal

    def tick(self) -> None:
        """Called often, while the run goes on."""

    def sweep(self, work: Work, facts: Facts) -> None:
        """The main process has ended: what is left of the driver must not go on without it."""

    def end(self) -> None:
        """Take in the rest."""

    def judge(self, ended: Dict[str, Any], reason: str) -> Tuple[str, str]:
        """Ending and reason of a run that failed, ``reason`` being what the log says."""
        return endings.FAILED, reason
