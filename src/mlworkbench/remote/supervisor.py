"""The supervisor of a run: claims, prepares, launches, watches, and stops it, and records its ending.

It may die at any moment. Its state is on disk, and the next contact starts a new supervisor that
continues.
"""

from __future__ import annotations

import os
import time

from .attempts import canceled_early, claim_attempt, died_early, retry_delay, wait_for_attempt, with_attempt
from .checkpoints import NoCheckpoints, prepare_checkpoints, remove_empty_checkpoints
from .claim import Interrupted, require_newest
from .client_registry import accepted_data
from .companions.group import make_companions
from .environments.environment_step import hold_environment, prepare_environment
from .explanation import decide_ending, describe_ranks, is_own_end
from .heartbeat import Heartbeat
from .journal import ATTEMPT_ENDED, Journal, log, release_reserve, reserve_space
from .launcher import decide_start
from .markers import finalize_exit, read_exit, read_start_decision, read_started, read_starting, write_exit
from .pending_ending import retry_until_written
from .process_work import RUNNING
from .rank_processes import apply_launcher
from .resources.resource import make_resources
from .restart_detection import REBOOTED, RESTARTED, change_since
from .run_lock import is_lock_lost
from .run_spec import read_spec
from .shared import machine, run_endings
from .shared.atomic_files import read_json
from .shared.failpoint import enter_attempt, failpoint
from .shared.failure import mask_values, parse_failure
from .shared.layout import Root, RunFolder
from .shared.metric_limits import list_unread
from .stopping import Stopping
from .sweep_log import file_size
from .work import make_work
from .working_copy import create_working_copy, recycle_working_copy

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .run_spec import Spec
    from .shared.failure import Reason

CHECK_INTERVAL = 0.4  # maximum seconds until a cancel is noticed
_RANK_GRACE = 5.0  # seconds for ranks that outlive a launcher that failed


class Supervisor:
    """One supervisor process. It executes ``spec``, which contains all decisions of the client."""

    def __init__(self, root: Root, run: RunFolder, spec: Spec, umask: int) -> None:
        self.root = root
        self.journal = Journal(run)
        self.run = run = run.at(self.journal.ended_attempts + 1)
        self.spec = spec = with_attempt(spec, run)
        self._work = make_work(run, spec)
        self._stopping = Stopping(run, spec, self.journal, self._work)
        self._resources = make_resources(root, run, spec, self.journal)
        self._companions = make_companions(run, spec, self.journal, self._mask_secrets)
        self._heartbeat = Heartbeat(run)
        self._secrets: Optional[Dict[str, str]] = None  # None in a successor: secrets are never on disk
        self._umask = umask
        self._saw_alive = False  # whether this process, not a predecessor, watched the attempt
        self._delay = 0.0  # seconds before this attempt
        self.next_attempt: Optional[Supervisor] = None
        self.on_settled: Callable[[], None] = lambda: None  # called once, when the state of the run is known

    # -- start -------------------------------------------------------------------------------------

    def begin(self, secrets: Dict[str, str]) -> None:
        """Supervise a new run from its claim to the end of its first attempt."""
        self._secrets = secrets
        if "accepted" not in self.journal.kinds:  # a starter may have recorded it
            self.journal.add("accepted", accepted_data(self.root))
        failpoint("accepted")
        if self._is_canceled():
            self.refuse_start(canceled_early(self.run.attempt))
            return
        if os.path.exists(self.run.start_decision):  # decided before this scheduler job began
            self.resume()
            return
        self._prepare_and_start()

    def begin_again(self) -> None:
        """Supervise an attempt after the first, from its claim to its end."""
        enter_attempt(self.run.attempt)
        if claim_attempt(self.run):
            failpoint("attempt-claimed")
            self.begin_claimed()

    def begin_claimed(self, secrets: Optional[Dict[str, str]] = None) -> None:
        """Supervise a claimed attempt after the first. ``secrets``: of a supervisor that had no earlier attempt."""
        self._secrets = self._secrets if secrets is None else secrets
        if wait_for_attempt(self._delay, self._is_canceled, self._beat, CHECK_INTERVAL):
            self._prepare_and_start()
        else:
            self.refuse_start(canceled_early(self.run.attempt))

    def _prepare_and_start(self) -> None:
        ending = run_endings.COULD_NOT_START
        try:
            problem = self._prepare()
            if problem is not None:
                ending = run_endings.ENVIRONMENT_FAILED
            else:
                problem = self._resources.obtain(self._beat) or apply_launcher(self.run, self.spec)
        except NoCheckpoints as error:
            problem = error.failure
        except (OSError, ValueError) as error:
            problem = "cannot prepare the run: %s" % error
        if problem is not None:
            self.refuse_start(problem, ending)
            return
        failpoint("prepared")
        self._saw_alive = True
        self._work.start(self._secrets or {}, self._umask, self._resources.descriptors())
        failpoint("launched")
        self._wait_for_start()
        self.watch()

    def _prepare(self) -> Optional[Reason]:
        """Prepare the code, environment, and folders. Return the environment's problem, if any."""
        if self.run.attempt == 1 or not os.path.exists(self.run.work):  # later attempts continue in the same copy
            self.journal.add("step", {"step": "code", "snapshot": self.spec["snapshot"]})
            contained = bool(self.spec.get("container"))
            create_working_copy(self.root, self.spec["snapshot"], self.spec["project_id"], self.run, contained)
            failpoint("placed")
            os.makedirs(self.run.metrics, mode=0o700, exist_ok=True)
            prepare_checkpoints(self.root, self.run, self.spec, self._beat, self._is_canceled)
        problem = prepare_environment(self.root, self.run, self.spec, self._secrets, self._record_build, self._beat)
        if problem:
            return problem
        self._companions.prepare()
        self._work.prepare()
        reserve_space(self.run)
        return None

    def _record_build(self) -> None:
        self.journal.add("step", {"step": "environment", "digest": (self.spec.get("lock") or {})["digest"]})

    def _wait_for_start(self) -> None:
        """Poll briefly for the start, which takes milliseconds."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and self._work.is_launching():
            if os.path.exists(self.run.started) or os.path.exists(self.run.exit):
                return
            time.sleep(0.001)

    def refuse_start(self, reason: Reason, ending: str = run_endings.COULD_NOT_START) -> None:
        """Prevent the run from starting. If it has already started, watch it."""
        results: List[bool] = []

        def decide() -> None:
            results.append(decide_start(self.run, "never", reason, ending))

        if not retry_until_written(self.run, decide, "the start decision", self._notify_settled):
            return
        if results[0]:
            self.finish_unstarted({"reason": reason, "failure": reason, "ending": ending})
        else:
            self.resume()

    def finish_unstarted(self, decision: Dict[str, Any]) -> None:
        is_canceled, canceled = self._is_canceled(), canceled_early(self.run.attempt)
        reason = parse_failure(decision.get("failure")) or decision.get("reason") or "the run was not started"
        ending = run_endings.CANCELLED if is_canceled else decision.get("ending") or run_endings.COULD_NOT_START
        self.finish(ending, canceled if is_canceled else reason, None)

    # -- takeover ----------------------------------------------------------------------------------

    def resume(self) -> None:
        """Continue the run from the state in its files."""
        hold_environment(self.root, self.spec)
        decision = read_start_decision(self.run)
        if not os.path.exists(self.run.owner):  # the predecessor died between two attempts
            claim_attempt(self.run)
        change = change_since(decision or read_json(self.run.owner) or {})
        if change == REBOOTED:
            self._after_restart(decision, run_endings.TARGET_REBOOTED, "the machine was rebooted")
        elif change == RESTARTED:
            self._after_restart(
                decision, run_endings.TARGET_RESTARTED, "the target, which is a container, was restarted"
            )
        elif decision is None:
            self.refuse_start(died_early(self.run.attempt))
        elif decision["decision"] == "never":
            self.finish_unstarted(decision)
        else:
            self.watch()

    def _after_restart(self, decision: Optional[Dict[str, Any]], ending: str, message: str) -> None:
        """Record the ending after the machine or its container was restarted, or watch a run that still executes.

        No process of the run is left, but a container engine may still have its container or exit status.
        """
        if decision and decision["decision"] == "never":
            self.finish_unstarted(decision)
            return
        result = read_exit(self.run)
        if not result and decision:
            outcome = self._work.after_restart(ending == run_endings.TARGET_REBOOTED, self._notify_settled)
            if outcome == RUNNING:
                self.watch()
                return
            result = outcome if isinstance(outcome, dict) else None
        if result:
            self._stopping.restore()
            self.conclude(result)
        else:
            self._finish_interrupted(ending, message, message + " during the run", None)

    def end_job(self, ending: str, reason: str) -> None:
        """Record the ending of a run whose scheduler job has ended, from its exit status or the scheduler's report."""
        decision, result = read_start_decision(self.run), read_exit(self.run)
        self._stopping.restore()
        if decision and decision["decision"] == "never":
            self.finish_unstarted(decision)
        elif result and is_own_end(result, self._stopping.why, ending):
            self.conclude(result)
        else:
            ending = run_endings.CANCELLED if self._is_canceled() else ending
            self._finish_interrupted(ending, reason, reason, result)

    def _finish_interrupted(self, ending: str, problem: str, reason: str, result: Optional[Dict[str, Any]]) -> None:
        decide_start(self.run, "never", problem)
        self._notify_settled()
        self._companions.end(read_started(self.run))
        self.finish(ending, reason, result)

    # -- watch -------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Watch the run until it ends, then record the ending."""
        self._stopping.restore()
        facts = self._started_facts()
        wait = machine.make_waiter(facts["launcher"] if facts else None)
        while True:
            require_newest(self.run)
            self._work.reap()
            decision = read_start_decision(self.run)
            if decision is None and not self._work.is_launching():
                self.refuse_start("the launcher died before the script started")
                return
            if decision and decision["decision"] == "never":
                self.finish_unstarted(decision)
                return
            facts = facts or self._started_facts()
            result = read_exit(self.run) or self._work.find_unrecorded_exit()
            if result:
                break
            self._saw_alive = True
            self._record_step()
            self._beat()
            self._notify_settled()
            self._pause(wait, facts)
        is_launcher_failed = self.spec.get("processes") and result["code"] != 0
        self._stopping.end_leftovers(facts, _RANK_GRACE if is_launcher_failed else None)
        self._companions.end_leftovers(self._work, facts)
        self.conclude(result)

    def _beat(self) -> None:
        require_newest(self.run)
        self._heartbeat.beat()

    def abandon(self) -> None:
        """End the processes of this attempt without recording anything, because a newer one has been claimed."""
        self._work.abandon(read_started(self.run) or read_starting(self.run))

    def _pause(self, wait: Callable[[float], bool], facts: Optional[Dict[str, Any]]) -> None:
        """Wait until a full check is due. This must be cheap: it runs alongside the script for days."""
        while not self._heartbeat.is_due():
            require_newest(self.run)
            self._stopping.check(facts)
            self._resources.keep()
            self._companions.tick(facts)
            if wait(CHECK_INTERVAL) or facts is None or os.path.exists(self.run.exit):
                return

    def _notify_settled(self) -> None:
        callback, self.on_settled = self.on_settled, lambda: None
        callback()

    def _started_facts(self) -> Optional[Dict[str, Any]]:
        facts = self._work.started()
        if facts and "started" not in self.journal.kinds:
            self.journal.add("started", {"pid": facts["pid"], "time": facts["time"]})
            failpoint("started")
        return facts

    def _record_step(self) -> None:
        step = self._work.step()
        if step:
            self.journal.add("step", step)

    # -- end ---------------------------------------------------------------------------------------

    def conclude(self, result: Dict[str, Any]) -> None:
        require_newest(self.run)
        self._record_exit(result)
        facts = self._started_facts()
        outcome = decide_ending(self.run, self.spec, self._stopping, facts, result)
        if outcome is None:
            raise Interrupted
        ending, reason = outcome.ending, outcome.reason
        self._notify_settled()
        self._companions.end(facts)
        if ending == run_endings.FAILED:
            reason = outcome.explain_failure(self._mask_secrets, self.journal.log_start)
        ending, reason = self._companions.explain(ending, reason, outcome.result)
        self.finish(ending, outcome.extend(reason), outcome.result)

    def _mask_secrets(self, text: str) -> str:
        """Mask secrets in ``text``. Return "" if the secrets are not known."""
        if self._secrets is None and self.spec.get("secrets"):
            return ""
        return mask_values(text, (self._secrets or {}).values())

    def finish(self, ending: str, reason: Optional[Reason], result: Optional[Dict[str, Any]]) -> None:
        """Record the ending unless it has already been recorded."""
        require_newest(self.run)
        if is_lock_lost(self.run.lock) or self.journal.has_ended():
            return
        facts = read_started(self.run)
        data: Dict[str, Any] = dict(run_endings.outcome(ending, reason), log_size=file_size(self.run.log))
        data.update(describe_ranks(self.run, self.spec))
        if result:
            data.update(exit=result["code"], signal=result["signal"], ended=result["ended"], elapsed=result["elapsed"])
            if self._end_attempt(data, facts):
                return
        # The script has started, perhaps in an earlier attempt. There is no result if a reboot ended it.
        if result or facts or self.run.attempt > 1:
            data.update(self._collect_outputs(dict(data)))
        if result:
            data["leftovers"] = [pid for pid, _ in self._work.living_processes(facts)]
        data["left_out"] = list_unread(self.run.metrics) + data.get("left_out", [])
        data["gpu"] = self._companions.verdict(facts is not None, ending, data["failure"])
        self._resources.release()
        self._work.clean_up()
        failpoint("finishing")
        self.journal.add("finished", data, durable=True)
        retry_until_written(self.run, self.journal.flush, "the event journal", self._notify_settled)
        self._notify_settled()
        failpoint("finished")
        release_reserve(self.run)
        finalize_exit(self.run)
        remove_empty_checkpoints(self.run)
        if data.get("leftovers"):
            return  # a process of the run is still alive and may write to the working copy
        try:
            contained = bool(self.spec.get("container"))
            recycle_working_copy(self.root, self.spec["snapshot"], self.spec["project_id"], self.run, contained)
        except OSError as error:
            log("the working copy could not be kept for the next run: %s" % error)

    def _end_attempt(self, data: Dict[str, Any], facts: Optional[Dict[str, Any]]) -> bool:
        """End this attempt and prepare the next one, if there is one. Return False if the run ends."""
        delay = retry_delay(self.spec, self.run.attempt, data)
        if delay is None or not self._saw_alive or self._is_canceled():
            return False
        if self._secrets is None and self.spec.get("secrets"):
            log("there is no other attempt, because this process does not have the secrets of the run")
            return False
        if not self._stopping.end_all(facts):
            return False
        gpu = self._companions.verdict(facts is not None, data["ending"], data["failure"])
        self._resources.release()
        self._work.clean_up()
        failpoint("attempt-ending")
        self.journal.add(ATTEMPT_ENDED, dict(data, attempt=self.run.attempt, gpu=gpu, delay=delay), durable=True)
        if not retry_until_written(self.run, self.journal.flush, "the event journal", self._notify_settled):
            return True
        failpoint("attempt-ended")
        finalize_exit(self.run)
        self.journal.close()
        spec = read_spec(self.run) or self.spec  # without the GPUs of this attempt
        self.next_attempt = Supervisor(self.root, self.run, spec, self._umask)
        self.next_attempt._secrets, self.next_attempt._delay = self._secrets, delay
        return True

    def _record_exit(self, result: Dict[str, Any]) -> None:
        """Record an exit status that only this process has, because the launcher was killed."""
        if read_exit(self.run) is None:
            retry_until_written(self.run, lambda: write_exit(self.run, result), "the exit status", self._notify_settled)

    def _collect_outputs(self, ending: Dict[str, Any]) -> Dict[str, Any]:
        from .output_collection import collect_outputs  # noqa: PLC0415 - not needed before the end
        from .script_files import ScriptFiles  # noqa: PLC0415 - as above

        self._notify_settled()
        self.journal.add("collecting", ending)  # listing the outputs may take a long time
        files = ScriptFiles()
        self._companions.describe_files(files)
        return collect_outputs(self.run, self.spec, files, self._is_canceled, self._notify_settled)

    def _is_canceled(self) -> bool:
        return os.path.exists(self.run.cancel)
