"""Cancel the job of a run."""

from __future__ import annotations

import os

from ..shared.layout import Root, RunFolder
from .job_queue import forget_queue, read_queue
from .job_record import read_record, remove_secrets
from .slurm_programs import call

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional


def cancel_job(run: RunFolder, comment: str, urgent: bool) -> bool:
    """Remove a waiting job and signal a running one. ``urgent``: end a running one, without regard for its script.

    Return whether the job may have ended without a supervisor that records the ending. The supervisor of a running
    job looks for the cancel when it is signaled, because its node may have cached that there is none.
    """
    remove_secrets(run)  # a run that has not started never will
    root = Root(os.path.dirname(os.path.dirname(run.path)))
    job = _find_job(root, run, comment)
    if job is None:
        return True
    try:
        call("scancel", ["--state=PENDING", job])
        if os.path.exists(run.owner):
            call("scancel", [job] if urgent else ["--batch", "--signal=USR2", "--state=RUNNING", job])
        else:
            call("scancel", [job])  # before the supervisor: nothing would receive the signal
    finally:
        forget_queue(root)
    return not os.path.exists(run.owner)


def _find_job(root: Root, run: RunFolder, comment: str) -> Optional[str]:
    job: Optional[str] = (read_record(run) or {}).get("job")
    if job is not None:
        return job
    row = read_queue(root).find(os.path.basename(run.path), comment)
    return row["job"] if row else None
