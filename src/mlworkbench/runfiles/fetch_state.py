"""Determine whether all files of a remote run are on this machine.

Only then may the run folder on the target be deleted.
"""

from __future__ import annotations

import os

from ..model import Run
from ..remote.shared import run_endings
from ..remote.shared.atomic_files import read_json
from ..remote.shared.kept_reasons import CHECKPOINTS, GOING, UNCOLLECTED, UNFETCHED
from ..remote.shared.layout import RunFolder
from ..remote.shared.output_kinds import ONLY_ON_TARGET
from .local_copy import LocalCopy
from .output_manifest import read_outputs

# Endings that a target reports for a run that never started.
_NOT_STARTED = (
    run_endings.CANCELLED,
    run_endings.COULD_NOT_START,
    run_endings.ENVIRONMENT_FAILED,
    run_endings.TARGET_REBOOTED,
    run_endings.TARGET_RESTARTED,
)


def is_fetched(run: Run, folder: RunFolder) -> bool:
    """Return whether the run has ended and all of its files are on this machine."""
    return unfetched_reason(run, folder) is None


def unfetched_reason(run: Run, folder: RunFolder) -> str | None:
    """Return why the run is not fetched: GOING, UNFETCHED, or UNCOLLECTED; None if it is complete.

    UNCOLLECTED: the target could not collect some of the outputs.
    """
    if not run.status.final:
        return GOING
    if LocalCopy(folder).size() < (run.log_size or 0):
        return UNFETCHED
    if run.ending == run_endings.TARGET_LOST:
        return UNCOLLECTED  # abandoned with --forget; the run may have started unnoticed
    if run.outputs is None:
        # A sweep, or a run that never started, has no outputs. Otherwise, the target could not read them.
        return None if run.spec.sweep is not None or _never_started(run) else UNCOLLECTED
    if count_listed(run) and not os.path.exists(folder.fetch_marker):
        return UNFETCHED
    return UNCOLLECTED if count_listed(run) and count_target_only(folder) else None


def unfetched_checkpoints(run: Run, folder: RunFolder) -> str | None:
    """Return CHECKPOINTS if the run has checkpoints that are not on this machine."""
    return CHECKPOINTS if run.checkpoint_bytes and not os.path.exists(folder.checkpoint_list) else None


def count_listed(run: Run) -> int:
    """Return the number of entries in the run's list of outputs, including uncollected ones."""
    return (run.outputs or 0) + run.uncollected


def _never_started(run: Run) -> bool:
    """Return whether the run was never accepted, or the target reported that it did not start."""
    return run.started is None and (run.accepted is None or run.ending in _NOT_STARTED)


def count_target_only(folder: RunFolder) -> int:
    """Return the number of listed outputs that exist only on the target."""
    recorded = (read_json(folder.fetch_marker) or {}).get("only_there")
    if type(recorded) is int:
        return recorded
    if not os.path.exists(folder.manifest):  # a run from an older mlw version
        return 0
    return sum(output.kind in ONLY_ON_TARGET for output in read_outputs(folder.manifest))
