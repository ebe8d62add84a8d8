"""Submit the job of a run once, even if the answer of sbatch is lost or the submitting process is killed.

The run folder records the intent before ``sbatch`` is called. A process that finds an intent without a job looks the
job up by its name and comment. If two jobs exist nevertheless, only one can claim the run.
"""

from __future__ import annotations

import os
import time

from ..attempts import canceled_early
from ..client_registry import accepted_data
from ..environments.environment_step import prepare_environment
from ..journal import Journal, log
from ..shared import machine, run_endings
from ..shared.atomic_files import write_atomic
from ..shared.failpoint import failpoint
from ..shared.failure import Failed, failure, failure_answer
from ..shared.starter_names import SLURM
from ..supervisor import Supervisor
from .job_allocation import is_requeued
from .job_cancel import cancel_job
from .job_queue import read_queue
from .job_record import (
    checked_job,
    comment_of,
    job_of_owner,
    read_record,
    record_path,
    remove_secrets,
    submission_lock,
    write_record,
    write_secrets,
)
from .job_script import job_script, sbatch_options
from .slurm_programs import SlurmError, SlurmSilent, call

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from ..shared.layout import Root, RunFolder
    from ..supervision import Supervision

    Message = Dict[str, Any]

SBATCH_TIMEOUT = 60.0
_LOOK_TIME = 10.0  # seconds to look for a job that a killed sbatch may have submitted
_LOOK_INTERVAL = 0.5
_RETRY_TIME = 3600.0  # seconds to wait for Slurm after the environment was built in the background
_MAX_PAUSE = 30.0


class JobSubmission:
    """The submission of one run, in a process that outlives the connection."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._root: Root = supervision.root
        self._run: RunFolder = supervision.run
        self._spec = supervision.spec
        self._umask = supervision.umask
        self._comment = comment_of(self._root, self._run)
        self._lock: Optional[int] = None
        self._respond: List[Callable[[Message], None]] = []  # until it has been called

    def work(self, respond: Callable[[Message], None]) -> None:
        """Build the environment if necessary, submit the job, and respond as soon as the outcome is clear.

        The response does not wait for a build of the environment.
        """
        self._respond.append(respond)
        self._lock = machine.lock(submission_lock(self._run))
        if self._lock is None:  # another process submits the same run; its handle is the same
            self._answer({"ok": True})
            return
        if os.path.exists(self._run.owner) or self._recorded_job() is not None:
            self._restore_secrets()
            self._accept()
            return
        problem: Any = prepare_environment(
            self._root, self._run, self._spec, self._supervision.secrets, self._note_build, lambda: None
        )
        if problem is None:
            problem = self._submit()
        if problem is not None:
            remove_secrets(self._run)
            if self._respond and problem["code"] not in ("environment-failed", "cancelled"):
                self._answer(failure_answer(problem))  # nothing was recorded: the same request may be repeated
            else:
                self._end_run(problem)

    @property
    def handle(self) -> Message:
        return {"comment": self._comment}

    def _answer(self, message: Message) -> None:
        if self._respond:
            self._respond.pop()(message)

    def _accept(self) -> None:
        write_atomic(self._run.handle, {"starter": SLURM, "handle": self.handle})
        self._answer({"ok": True})

    def _recorded_job(self) -> Optional[str]:
        """Return the job that has claimed the run, or else the one in the record."""
        return job_of_owner(self._run) or (read_record(self._run) or {}).get("job")

    def _record_job(self, job: str) -> None:
        """Record the job, unless another job of the run has claimed it: that one is the job of the run."""
        write_record(self._run, self._record(job=job, submitted=time.time()))
        owner = job_of_owner(self._run)  # read after writing, because a job records itself after its claim
        if owner not in (None, job):
            write_record(self._run, self._record(job=owner))

    def _repeat_cancel(self) -> None:
        """Remove a job whose run was canceled while it was submitted: the cancel may not have found it."""
        if os.path.exists(self._run.cancel):
            try:
                cancel_job(self._run, self._comment, urgent=False)
            except SlurmError as error:  # the next request for the status repeats it
                log("cannot cancel the job of the run: %s" % error)

    def _restore_secrets(self) -> None:
        """Write the secrets again for a waiting job: they were deleted when its submission was reported as failed."""
        if self._supervision.secrets and not os.path.exists(self._run.owner):
            write_secrets(self._run, self._supervision.secrets)
            if os.path.exists(self._run.owner):  # it has started in the meantime, and deletes only what it finds
                remove_secrets(self._run)

    def _note_build(self) -> None:
        """Record that the environment is being built, which may take minutes."""
        self._accept()
        journal = Journal(self._run)
        journal.add("accepted", accepted_data(self._root))
        journal.add("step", {"step": "environment", "digest": (self._spec.get("lock") or {})["digest"]})
        journal.close()

    def _submit(self) -> Any:
        """Submit the job, or find the one that was submitted before. Return a failure or None."""
        retry_until = time.monotonic() + (0.0 if self._respond else _RETRY_TIME)
        pause = 1.0
        while not os.path.exists(self._run.cancel):
            try:
                job = self._find_job()
                if job is None:
                    job = self._call_sbatch()
                else:
                    self._restore_secrets()
                self._record_job(job)
                failpoint("job-recorded")
                self._accept()
                self._repeat_cancel()
                return None
            except SlurmSilent as error:
                if time.monotonic() > retry_until:
                    return error.failure
                time.sleep(pause)
                pause = min(_MAX_PAUSE, 2 * pause)
            except Failed as error:
                return error.failure
        return failure("cancelled", canceled_early(1))

    def _record(self, **values: Any) -> Message:
        intent = read_record(self._run) or {"comment": self._comment, "time": time.time()}
        return {key: value for key, value in dict(intent, **values).items() if value is not None}

    def _find_job(self) -> Optional[str]:
        """Return the job of an earlier call of sbatch whose answer was lost, or None if there certainly is none."""
        record = read_record(self._run)
        if record is None:
            return None
        while self._recorded_job() is None:
            queue = read_queue(self._root, time.time())
            if queue.error is not None:
                raise SlurmSilent("Slurm does not respond: %s" % queue.error, "run the same command again")
            row = queue.find(os.path.basename(self._run.path), self._comment)
            if row is not None:
                return row["job"]
            if not 0 <= time.time() - float(record["time"]) < _LOOK_TIME:
                return None
            time.sleep(_LOOK_INTERVAL)
        return self._recorded_job()

    def _call_sbatch(self) -> str:
        scheduler: Dict[str, Any] = self._spec.get("scheduler") or {}
        name, requeue = os.path.basename(self._run.path), is_requeued(self._spec)
        options = sbatch_options(self._run, name, self._comment, scheduler, requeue)
        script = job_script(self._run, self._supervision.command, [str(line) for line in scheduler.get("setup") or ()])
        if self._supervision.secrets:
            write_secrets(self._run, self._supervision.secrets)
        write_record(self._run, {"comment": self._comment, "time": time.time()})
        failpoint("job-intended")
        assert self._lock is not None
        os.set_inheritable(self._lock, True)
        try:
            output = call("sbatch", options, script, SBATCH_TIMEOUT, keep=[self._lock])
        except SlurmSilent:
            write_record(self._run, self._record(time=time.time()))  # the job may still appear: look for it from now on
            raise
        except SlurmError:
            os.unlink(record_path(self._run))
            raise
        failpoint("job-submitted")
        job = checked_job(output.strip().splitlines()[-1].split(";")[0] if output.strip() else "")
        if job is None:
            raise SlurmSilent("sbatch: unexpected output %a" % output[:200])
        return job

    def _end_run(self, problem: Any) -> None:
        """Record that the run never starts."""
        self._accept()
        supervisor = Supervisor(self._root, self._run, self._spec, self._umask)
        if "accepted" not in supervisor.journal.kinds:
            supervisor.journal.add("accepted", accepted_data(self._root))
        failed = problem["code"] == "environment-failed"
        supervisor.refuse_start(problem, run_endings.ENVIRONMENT_FAILED if failed else run_endings.COULD_NOT_START)
