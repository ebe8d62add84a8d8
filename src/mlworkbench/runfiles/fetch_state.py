"""Whether everything of a run on another machine is here; if not, why. Only then may its folder there be deleted."""

from __future__ import annotations

import os

from ..model import Run
from ..remote.shared import endings
from ..remote.shared.files import read_json
from ..remote.shared.kept_reasons import GOING, UNCOLLECTED, UNFETCHED
from ..remote.shared.layout import RunFolder
from ..remote.shared.output_kinds import ONLY_THERE
from .manifest import read_outputs
from .mirror import Mirror

# The endings that a target reports of a run that never started.
_UNSTARTED = (
    endings.CANCELLED,
    endings.COULD_NOT_START,
    endings.ENVIRONMENT_FAILED,
    endings.TARGET_REBOOTED,
    endings.TARGET_RESTARTED,
)


def is_home(run: Run, folder: RunFolder) -> bool:
    """Whether the run has ended and nothing of it is on the machine alone."""
    return why_not_home(run, folder) is None


def why_not_home(run: Run, folder: RunFolder) -> str | None:
    """GOING, UNFETCHED, or UNCOLLECTED: the target could not collect some of its outputs. None: all is here."""
    if not run.status.final:
        return GOING
    if Mirror(folder).size() < (run.log_size or 0):
        return UNFETCHED
    if run.ending == endings.TARGET_LOST:
        return UNCOLLECTED  # given up (--forget): it may have started without this laptop hearing of it
    if run.outputs is None:
        return None if run.spec.sweep is not None or _never_started(run) else UNCOLLECTED  # they could not be read
    if count_listed(run) and not os.path.exists(folder.home):
        return UNFETCHED
    return UNCOLLECTED if count_listed(run) and count_only_there(folder) else None


def count_listed(run: Run) -> int:
    """How many entries the run's list of outputs has, with those that could not be collected."""
    return (run.outputs or 0) + run.uncollected


def _never_started(run: Run) -> bool:
    """Whether it was never accepted, or the target reported that it did not start. Silence is no such report."""
    return run.started is None and (run.accepted is None or run.ending in _UNSTARTED)


def count_only_there(folder: RunFolder) -> int:
    """How many entries of the list of outputs stand for something that never comes home."""
    known = (read_json(folder.home) or {}).get("only_there")
    if type(known) is int:
        return known
    if not os.path.exists(folder.manifest):  # older runs
        return 0
    return sum(one.kind in ONLY_THERE for one in read_outputs(folder.manifest))
