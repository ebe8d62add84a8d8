"""The supervisor of one run: claims it, prepares it, puts the launcher to work, watches, stops, tells the ending.

It may die at any moment. What it knows is on disk, and the next contact puts a new one to work, which goes on.
"""

from __future__ import annotations

import json
import os
import time

from .clients import acceptance
from .companions.group import companions_of
from .environments.step import hold_environment, prepare_environment
from .heartbeat import Heartbeat
from .journal import Journal, drop_room, keep_room, log
from .launcher import pass_gate
from .notes import read_exit, read_gate, read_started, settle_exit, write_exit
from .pending_ending import until_written
from .processes import RUNNING
from .progress import is_full
from .progress import size as file_size
from .resources.resource import resources_of
from .restart import REBOOTED, RESTARTED, change_since
from .run_lock import is_replaced
from .shared import endings, machine
from .shared.failpoint import failpoint
from .shared.failure import checked, extended
from .shared.files import read_json
from .shared.layout import Root, RunFolder
from .shared.metric_files import left_out
from .stopping import Stopping
from .work import work_of
from .workcopy import place, recycle

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .run_spec import Spec
    from .shared.failure import Reason

LOOK = 0.4  # how long a cancel may go unnoticed
_KILLED_ELSEWHERE = "; meanwhile the kernel killed a process on this machine because memory ran out"


class Supervisor:
    """One incarnation. ``spec`` is the run as it was decided; nothing is decided here."""

    def __init__(self, root: Root, run: RunFolder, spec: Spec) -> None:
        self.root = root
        self.run = run
        self.spec = spec
        self.journal = Journal(run)
        self._work = work_of(run, spec)
        self._stopping = Stopping(run, spec, self.journal, self._work)
        self._resources = resources_of(root, run, spec, self.journal)
        self._companions = companions_of(run, spec, self.journal, self._masked)
        self._heartbeat = Heartbeat(run)
        self._secrets: Optional[Dict[str, str]] = None  # unknown to whoever took over
        self.settled: Callable[[], None] = lambda: None  # called once, when it is known how things stand

    # -- the way to the start ----------------------------------------------------------------------

    def begin(self, secrets: Dict[str, str], umask: int) -> None:
        """From the claim to the end of a new run."""
        self._secrets = secrets
        self.journal.add("accepted", acceptance(self.root))
        failpoint("accepted")
        if self._is_cancelled():
            self.never("canceled before it started")
            return
        if os.path.exists(self.run.gate):  # a job that comes late: nothing is prepared for a run that never starts
            self.go_on()
            return
        ending = endings.COULD_NOT_START
        try:
            problem = self._prepare()
            if problem is not None:
                ending = endings.ENVIRONMENT_FAILED
            else:
                problem = self._resources.obtain(self._heartbeat.beat)
        except (OSError, ValueError) as error:
            problem = "cannot prepare the run: %s" % error
        if problem is not None:
            self.never(problem, ending)
            return
        failpoint("prepared")
        self._work.start(secrets, umask, self._resources.descriptors())
        failpoint("launched")
        self._await_start()
        self.watch()

    def _prepare(self) -> Optional[Reason]:
        """Code, environment, folders; what is wrong with the environment."""
        self.journal.add("step", {"step": "code", "snapshot": self.spec["snapshot"]})
        contained = bool(self.spec.get("container"))
        place(self.root, self.spec["snapshot"], self.spec["project_id"], self.run, contained)
        failpoint("placed")
        os.makedirs(self.run.metrics, mode=0o700, exist_ok=True)
        problem = prepare_environment(
            self.root, self.run, self.spec, self._secrets, self._record_build, self._heartbeat.beat
        )
        if problem:
            return problem
        self._companions.prepare()
        self._work.prepare()
        keep_room(self.run)
        return None

    def _record_build(self) -> None:
        self.journal.add("step", {"step": "environment", "digest": (self.spec.get("lock") or {})["digest"]})

    def _await_start(self) -> None:
        """The start is a matter of milliseconds: look often, for a short while."""
        patience = time.monotonic() + 1.0
        while time.monotonic() < patience and self._work.coming():
            if os.path.exists(self.run.started) or os.path.exists(self.run.exit):
                return
            time.sleep(0.001)

    def never(self, reason: Reason, ending: str = endings.COULD_NOT_START) -> None:
        """Make sure that the run does not start; if it did meanwhile, watch it."""
        won: List[bool] = []

        def decide() -> None:
            won.append(pass_gate(self.run, "never", reason, ending))

        if not until_written(self.run, decide, "the start decision", self._settle):
            return
        if won[0]:
            self.finish_unstarted({"reason": reason, "failure": reason, "ending": ending})
        else:
            self.go_on()

    def finish_unstarted(self, gate: Dict[str, Any]) -> None:
        cancelled = self._is_cancelled()
        reason = checked(gate.get("failure")) or gate.get("reason") or "the run was not started"
        ending = endings.CANCELLED if cancelled else gate.get("ending") or endings.COULD_NOT_START
        self.finish(ending, "canceled before it started" if cancelled else reason, None)

    # -- a run that another supervisor began -------------------------------------------------------

    def go_on(self) -> None:
        """Take over, from what is on disk."""
        hold_environment(self.root, self.spec)
        gate = read_gate(self.run)
        change = change_since(gate or read_json(self.run.owner) or {})
        if change == REBOOTED:
            self._after_restart(gate, endings.TARGET_REBOOTED, "the machine was rebooted")
        elif change == RESTARTED:
            self._after_restart(gate, endings.TARGET_RESTARTED, "the target, which is a container, was restarted")
        elif gate is None:
            self.never("the supervisor died before the script started")
        elif gate["decision"] == "never":
            self.finish_unstarted(gate)
        else:
            self.watch()

    def _after_restart(self, gate: Optional[Dict[str, Any]], ending: str, what: str) -> None:
        """No process of the run is left here; an engine may have a container of it, or a record."""
        if gate and gate["decision"] == "never":
            self.finish_unstarted(gate)
            return
        ended = read_exit(self.run)
        if not ended and gate:
            found = self._work.after_restart(ending == endings.TARGET_REBOOTED, self._settle)
            if found == RUNNING:
                self.watch()
                return
            ended = found if isinstance(found, dict) else None
        if ended:
            self._stopping.recall()
            self.conclude(ended)
            return
        pass_gate(self.run, "never", what)
        self._settle()
        self._companions.end(read_started(self.run))
        self.finish(ending, what + " during the run", None)

    # -- watching ----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Until the run has ended, then tell how."""
        self._stopping.recall()
        facts = self._started_facts()
        wait = machine.waiter(facts["launcher"] if facts else None)
        while True:
            self._work.reap()
            gate = read_gate(self.run)
            if gate is None and not self._work.coming():
                self.never("the launcher died before the script started")
                return
            if gate and gate["decision"] == "never":
                self.finish_unstarted(gate)
                return
            facts = facts or self._started_facts()
            ended = read_exit(self.run) or self._work.ended_unseen()
            if ended:
                break
            self._tell_step()
            self._heartbeat.beat()
            self._settle()
            self._pause(wait, facts)
        self._stopping.sweep(facts)
        self._companions.sweep(self._work, facts)
        self.conclude(ended)

    def _pause(self, wait: Callable[[float], bool], facts: Optional[Dict[str, Any]]) -> None:
        """Until there is reason for a thorough look. Runs for days beside the user's work, so it must be cheap."""
        while not self._heartbeat.is_due():
            self._stopping.look(facts)
            self._resources.keep()
            self._companions.tick(facts)
            if wait(LOOK) or facts is None or os.path.exists(self.run.exit):
                return

    def _settle(self) -> None:
        settled, self.settled = self.settled, lambda: None
        settled()

    def _started_facts(self) -> Optional[Dict[str, Any]]:
        facts = self._work.started()
        if facts and "started" not in self.journal.kinds:
            self.journal.add("started", {"pid": facts["pid"], "time": facts["time"]})
            failpoint("started")
        return facts

    def _tell_step(self) -> None:
        step = self._work.step()
        if step:
            self.journal.add("step", step)

    # -- the end -----------------------------------------------------------------------------------

    def conclude(self, ended: Dict[str, Any]) -> None:
        self._keep_exit(ended)
        facts = self._started_facts()
        kills = machine.oom_kills()
        before = facts.get("oom_kills") if facts else None
        oom = kills is not None and before is not None and kills > before
        stop = self._stopping.reason(facts, ended)
        ending, reason = endings.decide(ended, stop, self._stopping.forced, oom)
        if ending == endings.TIMEOUT:
            reason = "stopped after the time limit of %g s" % self.spec["timeout"]
        elif stop == "cancel" and not ended.get("unstarted"):
            reason = "canceled by %s" % ((read_json(self.run.cancel) or {}).get("by") or "an unknown user")
        self._settle()
        self._companions.end(facts)
        failed = ending == endings.FAILED
        ending, reason = self._companions.explain(ending, self._explain(ended) if failed else reason, ended)
        if failed and reason:
            if is_full(self.run.path):
                reason = extended(reason, "; the disk that holds %s is full" % self.run.path)
            if oom:
                reason = extended(reason, _KILLED_ELSEWHERE)
        self.finish(ending, reason, ended)

    def _explain(self, ended: Dict[str, Any]) -> Reason:
        """What the log says of the failure. What the script prints of a secret stays in the log."""
        from .cause import explain, read_tail  # noqa: PLC0415 - regular expressions that an idle supervisor need not hold

        python = self.spec["commands"][-1]["argv"][0]
        text = self._masked(read_tail(self.run.log))
        return explain(text, self.run.work, python, ended["code"], ended["signal"])

    def _masked(self, text: str) -> str:
        """Without the secrets; nothing where they are not known."""
        if self._secrets is None and self.spec.get("secrets"):
            return ""
        for value in (self._secrets or {}).values():
            if len(value) >= 4:  # a shorter one would blot out ordinary words
                for form in (value, repr(value)[1:-1], json.dumps(value)[1:-1]):
                    text = text.replace(form, "***")
        return text

    def finish(self, ending: str, reason: Optional[Reason], ended: Optional[Dict[str, Any]]) -> None:
        """Tell the ending, once."""
        if is_replaced(self.run.lock) or self.journal.has_ended():
            return
        facts = read_started(self.run)
        data: Dict[str, Any] = dict(endings.outcome(ending, reason), log_size=file_size(self.run.log))
        if ended:
            data.update(exit=ended["code"], signal=ended["signal"], ended=ended["ended"], elapsed=ended["elapsed"])
        if ended or facts:  # also where a reboot ended it
            data.update(self._collect_safely(dict(data)))
        if ended:
            data["leftovers"] = [pid for pid, _ in self._work.living(facts)]
        data["left_out"] = left_out(self.run.metrics) + data.get("left_out", [])
        data["gpu"] = self._companions.verdict(facts is not None, ending, data["failure"])
        self._resources.release()
        self._work.leave()
        failpoint("finishing")
        self.journal.add("finished", data, lasting=True)
        until_written(self.run, self.journal.flush, "the event journal", self._settle)
        self._settle()
        failpoint("finished")
        drop_room(self.run)
        settle_exit(self.run)
        if data.get("leftovers"):
            return  # something of the run still lives and may write into its work copy
        try:
            contained = bool(self.spec.get("container"))
            recycle(self.root, self.spec["snapshot"], self.spec["project_id"], self.run, contained)
        except OSError as error:
            log("the working copy could not be kept for the next run: %s" % error)

    def _keep_exit(self, ended: Dict[str, Any]) -> None:
        """What only this process knows: the launcher was killed."""
        if read_exit(self.run) is None:
            until_written(self.run, lambda: write_exit(self.run, ended), "the exit status", self._settle)

    def _collect_safely(self, ending: Dict[str, Any]) -> Dict[str, Any]:
        """Nothing that can be done without may stand between the end of a run and its being told."""
        self._settle()
        try:
            return self._collect(ending)
        except Exception as error:  # noqa: BLE001 - the outputs are the user's, and may be anything
            log("the outputs could not be listed: %s: %s" % (type(error).__name__, error))
            return {"outputs": None, "output_bytes": None}

    def _collect(self, ending: Dict[str, Any]) -> Dict[str, Any]:
        """List the outputs. It may take long: the ending goes on record first, and a cancel cuts it short.

        The time limit does not: a script that it ended has often just written a checkpoint.
        """
        from .outputs import record_patiently  # noqa: PLC0415 - hashing loads megabytes that an idle supervisor must not hold

        self.journal.add("collecting", ending)
        return record_patiently(self.run, self._is_cancelled, self._settle)

    def _is_cancelled(self) -> bool:
        return os.path.exists(self.run.cancel)
