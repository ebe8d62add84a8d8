"""The status of many runs with one call of ``squeue``, and one of ``sacct`` for jobs that the queue no longer has."""

from __future__ import annotations

import os
import time

from ..environments.environment_usage import has_ended
from ..journal import log
from ..run_spec import read_spec
from ..shared import machine, run_endings
from ..shared.layout import Root, RunFolder
from ..shared.starter_names import ENDED, QUEUED, RUNNING, UNKNOWN
from . import job_states
from .accounting import last_rows, read_accounting
from .job_queue import Queue, read_queue
from .job_record import last_line, read_record, remove_secrets, submission_lock, write_record
from .slurm_programs import SlurmError, call

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..starters.starter import Handle, JobStatus
    from .job_queue import Row

SETTLE = 60.0  # seconds after which a job that an interrupted sbatch may have submitted is certainly in the queue
_ACCOUNTING_DELAY = 5.0
MISSING_LIMIT = 15 * 60.0  # seconds for which a job must be missing everywhere before its run has an unknown exit


class _Job:
    """The job of one run, while its status is determined."""

    def __init__(self, handle: Handle) -> None:
        self.run = RunFolder(str(handle["folder"]))
        self.comment = str(handle.get("comment"))
        self.record: Dict[str, Any] = read_record(self.run) or {}
        self.id: Optional[str] = self.record.get("job")

    @property
    def name(self) -> str:
        return os.path.basename(self.run.path)


def read_statuses(handles: Dict[str, Handle]) -> Dict[str, JobStatus]:
    """Return the status of each run. Runs that have ended need no answer of Slurm."""
    jobs = {name: _Job(handle) for name, handle in handles.items()}
    result: Dict[str, JobStatus] = {name: _with_job({"state": ENDED}, job) for name, job in _ended(jobs).items()}
    open_jobs = {name: job for name, job in jobs.items() if name not in result}
    for name, job in open_jobs.items():
        if job.id is None and machine.is_locked(submission_lock(job.run)):
            reason = "it is being submitted" if job.record else "the environment is being built"
            result[name] = {"state": QUEUED, "reason": reason}
    open_jobs = {name: job for name, job in open_jobs.items() if name not in result and _exists(job)}
    if open_jobs:
        result.update(_ask_slurm(open_jobs))
    for name, status in result.items():
        if status["state"] == ENDED:
            remove_secrets(jobs[name].run)
    return result


def _ended(jobs: Dict[str, _Job]) -> Dict[str, _Job]:
    return {name: job for name, job in jobs.items() if has_ended(job.run)}


def _exists(job: _Job) -> bool:
    return os.path.exists(job.run.spec)


def _with_job(status: JobStatus, job: _Job) -> JobStatus:
    if job.id is not None:
        status["job"] = job.id
    return status


def _ask_slurm(jobs: Dict[str, _Job]) -> Dict[str, JobStatus]:
    folder = next(iter(jobs.values())).run.path
    newest = max(_time(job.record, "submitted", "time") for job in jobs.values())
    queue = read_queue(Root(os.path.dirname(os.path.dirname(folder))), newest)
    rows = {name: _find_row(job, queue) for name, job in jobs.items()}
    past: Dict[str, Row] = {}
    past_error: Optional[str] = None
    if queue.error is None:
        ids = [job.id for name, job in jobs.items() if job.id is not None and _needs_accounting(job, rows[name])]
        executions, past_error = read_accounting(ids)
        past = last_rows(executions)
    result: Dict[str, JobStatus] = {}
    for name, job in jobs.items():
        row, recorded = rows[name], past.get(job.id or "")
        if recorded is not None and recorded["label"] == job.name and (row is None or row["state"] == "CANCELLED"):
            row = recorded
        if row is None:
            status = _missing(job, queue, past_error)
        elif row["state"] == "CANCELLED" and past_error is None and _is_recent(job, row):
            status = {"state": RUNNING if os.path.exists(job.run.owner) else QUEUED, "reason": "being canceled"}
        else:
            status = _describe(job, row)
        if queue.error is not None and row is not None:
            status["as_of"] = queue.asked_at
        elif row is not None and "missing_since" in job.record:
            _update(job, missing_since=None)
        result[name] = _with_job(status, job)
    _repeat_cancels([job for name, job in jobs.items() if result[name]["state"] == QUEUED])
    return result


def _repeat_cancels(waiting: List[_Job]) -> None:
    """Remove jobs whose runs were canceled while Slurm did not respond."""
    ids = [job.id for job in waiting if job.id is not None and os.path.exists(job.run.cancel)]
    if ids:
        try:
            call("scancel", ["--state=PENDING", *ids])
        except SlurmError as error:
            log("cannot cancel jobs %s: %s" % (", ".join(ids), error))


def _time(record: Dict[str, Any], *keys: str) -> float:
    times = [record[key] for key in keys if isinstance(record.get(key), (int, float))]
    return float(times[0]) if times else 0.0


def _find_row(job: _Job, queue: Queue) -> Optional[Row]:
    if job.id is not None:
        known = queue.rows.get(job.id)  # a controller that lost its state uses IDs again, for other jobs
        return known if known is not None and known["label"].partition("|")[0] == job.name else None
    row = queue.find(job.name, job.comment)
    if row is not None:  # the process that submitted it was killed before it recorded the job
        job.id = row["job"]
        _update(job, comment=job.comment, time=_time(job.record, "time"), job=job.id)
    return row


def _update(target: _Job, **values: Any) -> None:
    """Update the record. A full disk must not prevent an answer."""
    target.record.update(values)
    record = {key: value for key, value in target.record.items() if value is not None}
    if "comment" in record and "time" in record:
        try:
            write_record(target.run, record)
        except OSError:
            return


def _needs_accounting(job: _Job, row: Optional[Row]) -> bool:
    """Return whether the queue does not say how the job ended, or who canceled it."""
    return row is None or (row["state"] == "CANCELLED" and not os.path.exists(job.run.cancel))


def _is_recent(job: _Job, row: Row) -> bool:
    """Return whether the job ended so recently that the accounting may not know yet who canceled it."""
    if not _needs_accounting(job, row):
        return False
    end = job_states.parse_time(row["end"])
    return end is not None and 0 <= time.time() - end < _ACCOUNTING_DELAY


def _describe(job: _Job, row: Row) -> JobStatus:
    """Return the status for a row of squeue or sacct."""
    parsed = job_states.parse_state(row["state"])
    if parsed is None:
        return {"state": UNKNOWN}
    state, uid = parsed
    standing = job_states.standing_of(state)
    if standing == ENDED:
        return _describe_end(job, state, uid)
    status: JobStatus = {"state": standing}
    reason = job_states.optional_text(row.get("reason", ""))
    if standing == QUEUED:
        status["reason"] = "nodes are starting" if state == "CONFIGURING" else reason or state.lower()
        hint = job_states.advice(reason or "", row["job"])
        if hint is not None:
            status["hint"] = hint
        start = job_states.parse_time(row["start"])
        if start is not None:
            status["estimated_start"] = start
    else:
        nodes = job_states.expand_nodes(row["nodes"])
        if nodes:
            status["nodes"] = nodes
        if state in ("SUSPENDED", "STOPPED"):
            status["reason"] = "suspended"
        elif standing == UNKNOWN:
            status["reason"] = "Slurm reports the state %s" % state
    return status


def _describe_end(job: _Job, state: str, uid: Optional[int]) -> JobStatus:
    ending, reason = job_states.ending_of(state)
    if state == "CANCELLED" and uid is not None:
        reason += " by %s" % user_name(uid)
    limit = ((read_spec(job.run) or {}).get("scheduler") or {}).get("time")
    if state == "TIMEOUT" and isinstance(limit, (int, float)):
        reason += " of %s" % job_states.format_duration(limit)
    line = last_line(job.run) if state == "FAILED" else ""
    return {"state": ENDED, "ending": ending, "reason": reason + (": " + line if line else "")}


def user_name(uid: int) -> str:
    import pwd  # noqa: PLC0415 - rarely needed

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return "user %d" % uid


def _missing(job: _Job, queue: Queue, past_error: Optional[str]) -> JobStatus:
    """Return the status of a run whose job is neither in the queue nor in the accounting."""
    if queue.error is not None:
        return {"state": UNKNOWN, "reason": "Slurm does not respond: %s" % queue.error}
    if job.id is None:
        since = _time(job.record, "time") or _modified(job.run.handle)
        if time.time() - since < SETTLE:
            return {"state": UNKNOWN, "reason": "the submission was interrupted, and its job may still appear"}
        return {
            "state": ENDED,
            "ending": run_endings.COULD_NOT_START,
            "reason": "the submission to Slurm was interrupted",
        }
    if past_error:  # "": a cluster without accounting
        return {"state": UNKNOWN, "reason": "Slurm's accounting does not respond: %s" % past_error}
    now = time.time()
    since = _time(job.record, "missing_since")
    if not since:
        since = now
        _update(job, missing_since=now)
    reason = "Slurm has no record of job %s" % job.id
    if now - since < MISSING_LIMIT and not os.path.exists(job.run.exit):
        return {"state": UNKNOWN, "reason": reason}
    return {"state": ENDED, "ending": run_endings.EXIT_UNKNOWN, "reason": reason}


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
