"""Jobs in Slurm's accounting database, for those that the controller has forgotten. Some clusters have none."""

from __future__ import annotations

from .job_record import checked_job
from .job_states import parse_state
from .slurm_programs import SlurmError, SlurmMissing, call

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    Row = Dict[str, str]

_FIELDS = ("job", "state", "exit", "start", "end", "nodes", "label")
_FORMAT = "JobIDRaw,State,ExitCode,Start,End,NodeList,JobName"
_DISABLED = "accounting storage is disabled"
TIMEOUT = 15.0


def parse_accounting(output: str) -> List[Row]:
    """Return one row per execution of a job, oldest first. Lines that cannot be parsed are skipped."""
    rows = []
    for line in output.splitlines():
        fields = line.split("|", len(_FIELDS) - 1)
        if len(fields) == len(_FIELDS) and checked_job(fields[0]) and parse_state(fields[1]):
            rows.append(dict(zip(_FIELDS, fields)))
    return rows


def read_accounting(jobs: Sequence[str], timeout: float = TIMEOUT) -> Tuple[List[Row], Optional[str]]:
    """Return the executions of jobs, and why there is no answer: "" for a cluster without accounting."""
    if not jobs:
        return [], None
    try:
        output = call("sacct", ["-n", "-P", "-X", "-D", "-j", ",".join(jobs), "-o", _FORMAT], timeout=timeout)
    except SlurmError as error:
        message = str(error.failure["message"])
        is_absent = isinstance(error, SlurmMissing) or _DISABLED in message.lower()
        return [], "" if is_absent else message
    return parse_accounting(output), None


def last_rows(rows: Sequence[Row]) -> Dict[str, Row]:
    """Return the newest execution of each job."""
    return {row["job"]: row for row in rows}
