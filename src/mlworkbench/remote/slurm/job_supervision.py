"""The supervisor inside a job: find out which attempt this execution of the job is, claim it, and supervise it."""

from __future__ import annotations

import os
import time

from ..allocation import enter
from ..attempts import claim_attempt, newest_attempt, supervise_attempts
from ..client_registry import accepted_data
from ..journal import ATTEMPT_ENDED, Journal, log
from ..run_lock import acquire_lock
from ..shared import run_endings
from ..shared.atomic_files import read_json, write_atomic
from ..shared.failpoint import enter_attempt, failpoint
from ..shared.retry_causes import retry_cause
from ..shared.starter_names import SLURM
from ..supervisor import Supervisor
from ..sweep_log import file_size
from .job_allocation import REASONS, SlurmAllocation, job_of_process, read_cause
from .job_record import comment_of, job_of_owner, read_record, remove_secrets, write_record

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ..shared.layout import RunFolder
    from ..supervision import Supervision

_REASONS = dict(REASONS, **{run_endings.REQUEUED: "Slurm requeued the job"})


class JobSupervision:
    """Supervision of one execution of a job."""

    def __init__(self, supervision: Supervision) -> None:
        self._root = supervision.root
        self._run = supervision.run
        self._spec = supervision.spec
        self._secrets = supervision.secrets
        self._umask = supervision.umask
        self._job, self._restart = job_of_process()

    def work(self, respond: Callable[[Dict[str, Any]], None]) -> None:
        """Supervise the run, unless this execution of the job is not the newest one."""
        remove_secrets(self._run)
        allocation = SlurmAllocation(self._run, self._spec)
        allocation.handle_signals()
        enter(allocation)
        try:
            acquire_lock(self._run.lock)  # only a convenience: locks may not work across nodes
        except OSError as error:
            log("cannot lock the run folder: %s" % error)
        supervisor = self._claim()
        respond({"ok": True, "claimed": supervisor is not None, "pid": os.getpid()})
        if supervisor is not None:
            remove_secrets(self._run)  # a repeated request may have written them again until the claim
            supervise_attempts(supervisor, lambda: self._begin(supervisor))

    def _begin(self, supervisor: Supervisor) -> None:
        """Begin a claimed attempt, unless its script would run without its secrets."""
        if self._lacks_secrets():
            if "accepted" not in supervisor.journal.kinds:
                supervisor.journal.add("accepted", accepted_data(self._root))
            supervisor.refuse_start("the secrets of the run were deleted before its job started")
        elif supervisor.run.attempt == 1:
            supervisor.begin(self._secrets)
        else:
            supervisor.begin_claimed(self._secrets)

    def _claim(self) -> Optional[Supervisor]:
        """Claim the attempt of this execution. Return None if there is nothing to supervise."""
        newest = newest_attempt(self._run)
        owner = read_json(newest.owner)
        if owner is None:
            self._record_job()
            is_claimed = claim_attempt(newest)
            self._record_owner()
            if not is_claimed:
                return None
            failpoint("claimed")
            return self._supervisor()
        if owner.get("job") != self._job:
            log("job %s does not start the run, because job %s has" % (self._job, owner.get("job")))
            return None
        if not isinstance(owner.get("restart"), int) or owner["restart"] >= self._restart:
            log("restart %d of job %s is not the newest one" % (self._restart, self._job))
            return None
        return self._follow(newest)

    def _record_job(self) -> None:
        """Record the job if the process that submitted it was killed before it could.

        Without a handle, clients would expect the supervisor on the login node.
        """
        comment = comment_of(self._root, self._run)
        if not os.path.exists(self._run.handle):
            write_atomic(self._run.handle, {"starter": SLURM, "handle": {"comment": comment}})
        record = read_record(self._run) or {"comment": comment, "time": time.time()}
        if record.get("job") is None:
            write_record(self._run, dict(record, job=self._job, submitted=time.time()))

    def _record_owner(self) -> None:
        """Record the job that has claimed the run as its job. The submission may have recorded another one."""
        record, owner = read_record(self._run), job_of_owner(self._run)
        if record is not None and owner is not None and record.get("job") != owner:
            write_record(self._run, dict(record, job=owner))

    def _follow(self, previous: RunFolder) -> Optional[Supervisor]:
        """Claim the attempt after ``previous``, whose execution Slurm has ended, and record how that one ended."""
        if Journal(self._run).has_ended():
            return None
        following = self._run.at(previous.attempt + 1)
        enter_attempt(following.attempt)
        if not claim_attempt(following):
            return None
        failpoint("attempt-claimed")
        journal = Journal(following)  # read after the claim: from now on, no other process writes
        if "finished" in journal.kinds:
            return None
        if journal.ended_attempts < previous.attempt:
            ending = read_cause(previous, self._job) or run_endings.REQUEUED
            close_attempt(journal, previous, ending, _REASONS[ending])
            supervisor = self._supervisor()
            reason = self._refusal(previous.attempt, ending)
            if reason is not None:
                supervisor.finish(ending if ending != run_endings.REQUEUED else run_endings.EXIT_UNKNOWN, reason, None)
                return None
        return self._supervisor()

    def _supervisor(self) -> Supervisor:
        return Supervisor(self._root, self._run, self._spec, self._umask)

    def _lacks_secrets(self) -> bool:
        return any(name not in self._secrets for name in self._spec.get("secrets") or ())

    def _refusal(self, attempt: int, ending: str) -> Optional[str]:
        """Return why the run does not continue after an attempt that Slurm ended, or None."""
        retries = self._spec.get("retries")
        if retries and (attempt > retries["limit"] or retry_cause(ending, None) not in (None, *retries["causes"])):
            return _REASONS[ending]
        if self._lacks_secrets():
            return "%s, and the secrets of the run are no longer available" % _REASONS[ending]
        return None


def close_attempt(journal: Journal, attempt: RunFolder, ending: str, reason: str) -> None:
    """Record the ending of an attempt that has no supervisor."""
    data: Dict[str, Any] = dict(run_endings.outcome(ending, reason), log_size=file_size(attempt.log), exit=None)
    data.update(signal=None, ended=time.time(), elapsed=None, attempt=attempt.attempt, gpu=None, delay=0.0)
    journal.add(ATTEMPT_ENDED, data, durable=True)
