"""The starter for Slurm: the supervisor is the batch process of a job.

The handle is the comment of the job. The run folder contains the job ID once Slurm has accepted the job.
"""

from __future__ import annotations

import os

from ..attempts import newest_attempt
from ..background_process import run_in_background
from ..shared.atomic_files import read_json
from ..shared.failure import AGENT_ERROR, Failed, parse_failure
from ..shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ..run_spec import Spec
    from ..supervision import Supervision
    from .starter import Handle, JobStatus


class NotSubmitted(Failed):
    """Error for a job that was not submitted."""


def start(run: RunFolder, spec: Spec, secrets: Dict[str, str], supervision: Supervision) -> Handle:
    """Submit the job in a process that outlives the connection, because it may have to build the environment."""
    from ..slurm.job_submission import JobSubmission  # noqa: PLC0415 - a supervisor does not need it

    submission = JobSubmission(supervision)
    response = run_in_background(run, submission.work)
    if not response.get("ok"):
        reason = parse_failure(response.get("failure"))
        if reason is None:
            raise NotSubmitted(str(response.get("problem")), code=AGENT_ERROR)
        raise NotSubmitted(reason["message"], reason["hint"], reason["code"], reason["explain"])
    return submission.handle


def supervise(supervision: Supervision, respond: Callable[[Dict[str, Any]], None]) -> None:
    """Supervise the run in the batch process of its job, which may be one of several executions of the job."""
    from ..slurm.job_supervision import JobSupervision  # noqa: PLC0415 - only in jobs

    JobSupervision(supervision).work(respond)


def status(handles: Dict[str, Handle]) -> Dict[str, JobStatus]:
    """Return the status of each run, with one call of squeue."""
    from ..slurm.job_status import read_statuses  # noqa: PLC0415 - a supervisor does not need it

    return read_statuses(handles)


def cancel(handle: Handle, grace: Optional[float]) -> bool:
    """Remove a waiting job, or nudge the supervisor of a running one, which reads the cancel from the run folder.

    Return True if the job may have ended without a supervisor.
    """
    from ..environments.environment_usage import has_ended  # noqa: PLC0415 - a supervisor does not need it
    from ..slurm.job_cancel import cancel_job  # noqa: PLC0415 - as above

    run = newest_attempt(RunFolder(handle["folder"]))
    if has_ended(run):
        return False
    # After the script's end, the job may wait for another attempt, or its supervisor records the ending.
    is_urgent = not os.path.exists(run.exit) and (grace == 0 or read_json(run.stopping) is not None)
    return cancel_job(run, str(handle.get("comment")), is_urgent)
