"""What a run folder records about the run's Slurm job: ``slurm.json``, the secrets file, and the job's output."""

from __future__ import annotations

import json
import os
import re

from ..client_registry import root_identity
from ..shared.atomic_files import read_json, write_all, write_atomic
from ..shared.layout import Root, RunFolder

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    Record = Dict[str, Any]  # "comment", "time" of the intent; "job" and "submitted" once Slurm has accepted it

_JOB = re.compile(r"\d{1,10}")
_MAX_OUTPUT = 64 * 1024
# slurmstepd writes this line before it signals the job's processes.
_NOTICE = re.compile(r"\*\*\* (?:JOB|STEP) (\d+)[^*]*? CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")


def record_path(run: RunFolder) -> str:
    return os.path.join(run.path, "slurm.json")


def secrets_path(run: RunFolder) -> str:
    return os.path.join(run.path, "secrets.json")


def output_path(run: RunFolder) -> str:
    """Return the path of the job's own output: that of ``setUp``, of slurmstepd, and of a failed start."""
    return os.path.join(run.path, "slurm.out")


def submission_lock(run: RunFolder) -> str:
    """Return the path of the lock that a process holds while it submits the job, together with sbatch."""
    return os.path.join(run.path, "submitting")


def comment_of(root: Root, run: RunFolder) -> str:
    """Return the comment that identifies the job of this run. Another root folder may have a run with the same ID."""
    return "mlw %s %s" % (os.path.basename(run.path), root_identity(root) or "-")


def read_record(run: RunFolder) -> Optional[Record]:
    record = read_json(record_path(run), "comment", "time")
    if record is None or not isinstance(record["time"], (int, float)):
        return None
    return dict(record, job=checked_job(record.get("job")))


def write_record(run: RunFolder, record: Record) -> None:
    write_atomic(record_path(run), record)


def job_of_owner(run: RunFolder) -> Optional[str]:
    """Return the job that has claimed the run, or None. The record may contain another one that was submitted twice."""
    return checked_job((read_json(run.at(1).owner) or {}).get("job"))


def checked_job(job: Any) -> Optional[str]:
    """Return a job ID, or None for anything else."""
    return job if isinstance(job, str) and _JOB.fullmatch(job) else None


def write_secrets(run: RunFolder, secrets: Dict[str, str]) -> None:
    """Write the secrets where only this user and the job can read them. The job deletes the file at its start."""
    remove_secrets(run)
    descriptor = os.open(secrets_path(run), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(descriptor, json.dumps({"secrets": secrets}).encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_secrets(run: RunFolder) -> None:
    try:
        os.unlink(secrets_path(run))
    except OSError:
        pass  # the job has started, or the run has no secrets


def read_output(run: RunFolder) -> str:
    """Return the end of the job's own output."""
    try:
        with open(output_path(run), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MAX_OUTPUT))
            return file.read(_MAX_OUTPUT).decode("utf-8", "replace")
    except OSError:
        return ""


def read_notice(run: RunFolder, job: str, skip: int = 0) -> Optional[Tuple[str, int]]:
    """Return why Slurm stopped the job's newest execution, such as ``TIME LIMIT``, and the number of such notices.

    The reason is "" if a user canceled the job. Return None if there are at most ``skip`` notices.
    """
    notices = [match for match in _NOTICE.finditer(read_output(run)) if match.group(1) == job]
    if len(notices) <= skip:
        return None
    return (notices[-1].group(2) or "").strip(), len(notices)


def last_line(run: RunFolder) -> str:
    """Return the last message in the job's own output, or "". The answer of the supervisor's command is not one."""
    lines = [line.strip() for line in read_output(run).splitlines()]
    messages = [line for line in lines if line and "***" not in line and not line.startswith('{"ok"')]
    return messages[-1][:400] if messages else ""
