"""A Slurm job as seen from inside: its executions, the signals that Slurm sends, and why Slurm ends it."""

from __future__ import annotations

import os
import signal
import time

from ..allocation import SCHEDULER, Allocation
from ..attempts import newest_attempt
from ..journal import log
from ..shared import run_endings
from ..shared.atomic_files import read_json, write_unsynced
from .job_record import read_notice
from .job_script import NOTICE
from .job_states import format_duration, parse_duration

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional, Tuple

    from ..run_spec import Spec
    from ..shared.failure import Reason
    from ..shared.layout import RunFolder

# Text of slurmstepd after "DUE TO" → ending of the attempt.
_CAUSES = {
    "PREEMPTION": run_endings.PREEMPTED,
    "NODE FAILURE": run_endings.NODE_FAILURE,
    "JOB REQUEUE": run_endings.REQUEUED,
}
REASONS = {
    run_endings.PREEMPTED: "preempted by a job with a higher priority",
    run_endings.NODE_FAILURE: "a node of the job failed",
}
_QUERY_TIMEOUT = 5.0
_CAUSE_TIME = 5.0  # seconds until slurmstepd's message is in the output of the job
_ACCOUNTING_TIME = 2.0  # seconds until the accounting contains what the controller knows
_RECORD_TIME = 5.0  # seconds before the time limit that are kept for recording the ending
_HIDDEN = ("MLW_SUPERVISOR",)  # variables that are for the supervisor only


def is_requeued(spec: Spec) -> bool:
    """Return whether Slurm may start the job again. The secrets of a run are deleted when its job starts."""
    return bool((spec.get("scheduler") or {}).get("requeue", True)) and not spec.get("secrets")


def job_of_process() -> Tuple[str, int]:
    """Return the ID of the job in which this process runs, and how often Slurm has restarted it."""
    restart = os.environ.get("SLURM_RESTART_COUNT", "0")
    return os.environ.get("SLURM_JOB_ID", ""), int(restart) if restart.isdigit() else 0


def count_gpus(environment: Mapping[str, str]) -> int:
    """Return the number of GPUs that Slurm allocated on this node."""
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_GPUS"):
        devices = [device for device in environment.get(name, "").split(",") if device.strip()]
        if devices and devices != ["NoDevFiles"]:
            return len(devices)
    return 0


def cause_path(run: RunFolder) -> str:
    """Return the path where an attempt records why Slurm interrupted it, for the next execution of the job."""
    return os.path.join(os.path.dirname(run.claim), "interrupted.json")


class SlurmAllocation(Allocation):
    """The allocation of one execution of a job."""

    def __init__(self, run: RunFolder, spec: Spec) -> None:
        job, restart = job_of_process()
        self._job = job
        self._run = run
        self._spec = spec
        self.facts = {"job": job, "restart": restart}
        self.environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        self.gpus = count_gpus(self.environment)
        self._notices = (read_notice(run, job) or ("", 0))[1]  # of earlier executions
        self._is_ending = False
        self._next_query: Optional[float] = None  # when to ask for the time left, after the advance notice

    def handle_signals(self) -> None:
        """Handle the signals of Slurm, whose default action would end the supervisor."""
        signal.signal(signal.SIGTERM, self._note_end)
        signal.signal(signal.SIGUSR1, self._note_limit)
        signal.signal(signal.SIGUSR2, self._note_cancel)

    def _note_end(self, *_: Any) -> None:
        self._is_ending = True

    def _note_limit(self, *_: Any) -> None:
        self._next_query = 0.0

    def _note_cancel(self, *_: Any) -> None:
        """Make a cancel visible: a network file system may have cached that the file does not exist."""
        try:
            os.listdir(self._run.path)
        except OSError:
            return

    def stop_reason(self) -> Optional[str]:
        """Return why the script must be stopped now, or None."""
        if self._is_ending:
            return SCHEDULER
        if self._next_query is None or time.monotonic() < self._next_query:
            return None
        left = self._time_left() - self._spec["grace"] - _RECORD_TIME
        if left <= 0:
            return "timeout"
        self._next_query = time.monotonic() + left  # then ask again: an administrator may have extended the limit
        return None

    def _time_left(self) -> float:
        left = parse_duration(self._query("%L"))
        return left if left is not None else float(NOTICE) if self._next_query == 0.0 else 0.0

    def _query(self, field: str) -> str:
        """Return a field of this job as squeue prints it, or "" if Slurm does not respond."""
        from .slurm_programs import SlurmError, call  # noqa: PLC0415 - rarely needed

        try:
            return call("squeue", ["-h", "-j", self._job, "-o", field], timeout=_QUERY_TIMEOUT).strip()
        except SlurmError as error:
            log("cannot query job %s: %s" % (self._job, error))
            return ""

    def limit_reason(self) -> str:
        """Return the reason of a run that was stopped because of the job's time limit."""
        limit = (self._spec.get("scheduler") or {}).get("time")
        of_limit = " of %s" % format_duration(limit) if isinstance(limit, (int, float)) else ""
        return "stopped at the job's time limit%s" % of_limit

    def interruption(self) -> Optional[Tuple[str, Reason]]:
        """Return the ending if the job was canceled or timed out, or None if the run may continue."""
        cause = self._wait_for_cause()
        if cause == "TIME LIMIT":
            return run_endings.TIMEOUT, self.limit_reason()
        if cause == "":
            return run_endings.CANCELLED, "canceled in Slurm%s" % self._canceled_by()
        if cause is None and self._query("%T") == "RUNNING":
            return run_endings.CANCELLED, "stopped by SIGTERM, which was sent to the job"
        ending, attempt = _CAUSES.get(cause or ""), newest_attempt(self._run)
        if ending in REASONS and not is_requeued(self._spec):
            return ending, REASONS[ending]
        if ending is not None and (read_json(attempt.owner) or {}).get("restart") == self.facts["restart"]:
            write_unsynced(cause_path(attempt), {"ending": ending})
        return None

    def _wait_for_cause(self) -> Optional[str]:
        deadline = time.monotonic() + _CAUSE_TIME
        while True:
            notice = read_notice(self._run, self._job, self._notices)
            if notice is not None:
                return notice[0]
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)

    def _canceled_by(self) -> str:
        """Return " by" and the user, if the accounting knows it soon."""
        from .accounting import read_accounting  # noqa: PLC0415 - rarely needed
        from .job_states import parse_state  # noqa: PLC0415
        from .job_status import user_name  # noqa: PLC0415

        deadline = time.monotonic() + _ACCOUNTING_TIME
        while True:
            rows, error = read_accounting([self._job], _QUERY_TIMEOUT)
            state = parse_state(rows[-1]["state"]) if rows else None
            if state is not None and state[1] is not None:
                return " by %s" % user_name(state[1])
            if error is not None or time.monotonic() > deadline:
                return ""
            time.sleep(0.2)


def read_cause(run: RunFolder, job: str) -> Optional[str]:
    """Return the ending of an attempt whose job Slurm requeued: recorded by the attempt, or by the accounting."""
    from .accounting import read_accounting  # noqa: PLC0415

    recorded = read_json(cause_path(run), "ending")
    if recorded is not None and recorded["ending"] in _CAUSES.values():
        return str(recorded["ending"])
    rows, _ = read_accounting([job], _QUERY_TIMEOUT)
    states: Dict[str, str] = {"NODE_FAIL": run_endings.NODE_FAILURE, "PREEMPTED": run_endings.PREEMPTED}
    past = [row["state"] for row in rows[:-1]]  # the last row is this execution
    return states.get(past[-1]) if past else None
