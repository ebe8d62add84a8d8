"""The starter for machines without a scheduler: the supervisor is a process that outlives the agent.

The handle is the claim in the run folder, and the lock shows whether the supervisor is alive.
"""

from __future__ import annotations

from ..attempts import newest_attempt
from ..background_process import run_in_background
from ..shared import machine
from ..shared.layout import RunFolder
from ..shared.starter_names import ENDED, RUNNING, UNKNOWN
from ..stalled_supervisor import recover_supervisor

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Dict, Optional

    from ..run_spec import Spec
    from ..supervision import Supervision
    from .starter import Handle, JobStatus


def start(run: RunFolder, spec: Spec, secrets: Dict[str, str], supervision: Supervision) -> Handle:
    """Fork the supervisor, and wait until it has claimed the run."""
    return run_in_background(run, supervision.work)


def status(handles: Dict[str, Handle]) -> Dict[str, JobStatus]:
    """Return the status of each run, based on its supervisor's lock.

    A run without a supervisor has ended, or is waiting for the next contact, which starts a new supervisor.
    """
    return {name: _status(RunFolder(handle["folder"])) for name, handle in handles.items()}


def _status(run: RunFolder) -> JobStatus:
    from ..environments.environment_usage import has_ended  # noqa: PLC0415 - a start does not need it

    if machine.is_locked(run.lock):
        return {"state": RUNNING}
    return {"state": ENDED} if has_ended(run) else {"state": UNKNOWN, "reason": "no supervisor is running"}


def cancel(handle: Handle, grace: Optional[float]) -> bool:
    """Replace a supervisor that does not respond. A healthy one reads the cancel from the run folder."""
    return machine.CAN_FORK and recover_supervisor(newest_attempt(RunFolder(handle["folder"])))
