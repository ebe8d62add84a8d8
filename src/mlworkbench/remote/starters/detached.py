"""The starter of a machine without a scheduler: the supervisor is a process that outlives the agent.

The claim in the run folder is its handle, and its lock says whether it lives.
"""

from __future__ import annotations

from ..background import leave_behind
from ..shared import machine
from ..shared.layout import RunFolder
from ..shared.starter_names import ENDED, RUNNING, UNKNOWN
from ..unresponsive import rouse

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, Optional

    from ..run_spec import Spec
    from ..supervision import Supervision
    from .starter import Handle, Standing


def start(run: RunFolder, spec: Spec, secrets: Dict[str, str], supervision: Supervision) -> Handle:
    """Fork the supervisor, and wait until it has claimed the run."""
    return leave_behind(run, supervision.work)


def status(handles: Dict[str, Handle]) -> Dict[str, Standing]:
    """By the locks of the supervisors; a run without one has ended, or waits for its next contact."""
    return {name: _status(RunFolder(handle["folder"])) for name, handle in handles.items()}


def _status(run: RunFolder) -> Standing:
    from ..environments.stock import has_ended  # noqa: PLC0415 - a start needs none of it

    if machine.is_locked(run.lock):
        return {"state": RUNNING}
    return {"state": ENDED} if has_ended(run) else {"state": UNKNOWN, "reason": "no supervisor is running"}


def cancel(handle: Handle, grace: Optional[float]) -> bool:
    """The supervisor reads the cancel from the run folder; one that does not react is ended, and gets a successor."""
    return machine.FORKS and rouse(RunFolder(handle["folder"]))
