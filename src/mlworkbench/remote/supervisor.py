"""The supervisor of one run: claims it, prepares it, puts the launcher to work, watches, stops, tells the ending.

It may die at any moment. What it knows is on disk, and the next contact puts a new one to work, which goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from . import PROTOCOL, endings, machine
from .failpoint import failpoint
from .folder import Root, RunFolder
from .journal import RESERVE, Journal, drop_room, keep_room, read_json, write_whole
from .launcher import decode, pass_gate, put_to_work
from .workcopy import place, recycle

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

HEARTBEAT = 5.0
LOOK = 0.4  # how long a cancel may go unnoticed
STUCK = 60.0  # after KILL, before we say that a process will not die


class Supervisor:
    """One incarnation. ``spec`` is the run as it was decided; nothing is decided here."""

    def __init__(self, root: Root, run: RunFolder, spec: Dict[str, Any]) -> None:
        self.root = root
        self.run = run
        self.spec = spec
        self.journal = Journal(run)
        self.stop: Optional[str] = None
        self.forced = False
        self._reaped: Dict[int, int] = {}
        self._stopping = Stopping(self)
        self._beat = 0.0
        self._launcher: Tuple[Optional[int], Optional[int]] = (None, None)
        self._secrets: Optional[Dict[str, str]] = None  # unknown to whoever took over
        self.settled: Callable[[], None] = lambda: None  # called once, when it is known how things stand

    # -- the way to the start ----------------------------------------------------------------------

    def begin(self, secrets: Dict[str, str], umask: int) -> None:
        """From the claim to the end of a new run."""
        self._secrets = secrets
        self.journal.add("accepted", dict(machine.identity(), protocol=PROTOCOL, pid=os.getpid()))
        failpoint("accepted")
        if os.path.exists(self.run.cancel):
            self.never("cancelled before it started")
            return
        try:
            self._prepare()
        except (OSError, ValueError) as error:
            self.never("cannot prepare the run: %s" % error)
            return
        failpoint("prepared")
        pid = put_to_work(self.run, self.spec, secrets, umask)
        self._launcher = (pid, machine.start_time(pid))
        failpoint("launched")
        self._await_start()
        self.watch()

    def _prepare(self) -> None:
        self.journal.add("step", {"step": "code", "snapshot": self.spec["snapshot"]})
        place(self.root, self.spec["snapshot"], self.spec["project_id"], self.run)
        failpoint("placed")
        os.makedirs(self.run.metrics, mode=0o700, exist_ok=True)
        share = self.spec["environment"].get("AZUREML_NATIVE_SHARE_DIRECTORY")
        if share:
            os.makedirs(share, exist_ok=True)
        keep_room(self.run)

    def _await_start(self) -> None:
        """The start is a matter of milliseconds: look often, for a short while."""
        patience = time.monotonic() + 1.0
        while time.monotonic() < patience and _alive(self._launcher):
            if os.path.exists(self.run.started) or os.path.exists(self.run.exit):
                return
            time.sleep(0.001)

    def never(self, reason: str) -> None:
        """Make sure that the run does not start; if it did meanwhile, watch it."""
        if pass_gate(self.run, "never", reason):
            self.finish_unstarted(reason)
        else:
            self.go_on()

    def finish_unstarted(self, reason: str) -> None:
        cancelled = os.path.exists(self.run.cancel)
        ending = endings.CANCELLED if cancelled else endings.COULD_NOT_START
        self.finish(ending, "cancelled before it started" if cancelled else reason, None)

    # -- a run that another supervisor began -------------------------------------------------------

    def go_on(self) -> None:
        """Take over, from what is on disk."""
        gate = read_json(self.run.gate)
        here = machine.identity()
        owner = gate or read_json(self.run.owner) or {}
        if owner.get("boot_id") != here["boot_id"]:
            self._after_reboot(gate)
        elif gate is None:
            self.never("the supervisor died before the start")
        elif gate["decision"] == "never":
            self.finish_unstarted(gate.get("reason") or "it was decided not to start it")
        else:
            self.watch()

    def _after_reboot(self, gate: Optional[Dict[str, Any]]) -> None:
        if gate and gate["decision"] == "never":
            self.finish_unstarted(gate.get("reason") or "it was decided not to start it")
            return
        ended = read_json(self.run.exit)
        if ended:
            self.conclude(ended)
            return
        pass_gate(self.run, "never", "the machine was rebooted")
        self.finish(endings.TARGET_REBOOTED, "the machine was rebooted while the run was going on", None)

    # -- watching ----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Until the run has ended, then tell how."""
        self._recall()
        facts = self._started_facts()
        wait = machine.waiter(facts["launcher"] if facts else None)
        while True:
            self._reap()
            gate = read_json(self.run.gate)
            if gate is None and not _alive(self._launcher):
                self.never("the launcher died before the start")
                return
            if gate and gate["decision"] == "never":
                self.finish_unstarted(gate.get("reason") or "it was decided not to start it")
                return
            facts = facts or self._started_facts()
            ended = read_json(self.run.exit) or self._ended_unseen(facts)
            if ended:
                break
            self._beat_heart()
            self._settle()
            self._pause(wait, facts)
        self._stopping.sweep(facts)
        self.conclude(ended)

    def _pause(self, wait: Callable[[float], bool], facts: Optional[Dict[str, Any]]) -> None:
        """Until there is reason for a thorough look. Runs for days beside the user's work, so it must be cheap."""
        while time.monotonic() < self._beat + HEARTBEAT:
            self._stopping.look(facts)
            if wait(LOOK) or facts is None or os.path.exists(self.run.exit):
                return

    def _settle(self) -> None:
        settled, self.settled = self.settled, lambda: None
        settled()

    def _recall(self) -> None:
        """A predecessor may already have sent a signal: then the ending is ours, whoever tells it."""
        request = read_json(self.run.stopping)
        if request:
            self.stop, self.forced = request["by"], bool(request["forced"])

    def _started_facts(self) -> Optional[Dict[str, Any]]:
        facts = read_json(self.run.started)
        if facts and "started" not in self.journal.kinds:
            self.journal.add("started", {"pid": facts["pid"], "time": facts["time"]})
            failpoint("started")
        return facts

    def _ended_unseen(self, facts: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
        """The ending of a child whose launcher is gone: from our own wait, or unknown."""
        gate = read_json(self.run.gate)
        launcher = (gate["pid"], gate["start"]) if gate else self._launcher
        if _alive(launcher) or (facts and _alive((facts["pid"], facts["start"]))):
            return None
        if facts is None and machine.family(self.run.path, [], []):
            return None  # the launcher died between fork and note: the child is known by its mark only
        written = read_json(self.run.exit)  # it may have been written between our two looks
        if written:
            return written
        status = self._reaped.get(facts["pid"]) if facts else None
        code, number = decode(status) if status is not None else (None, None)
        ended = {"code": code, "signal": number, "problem": None, "ended": time.time(), "elapsed": None}
        write_whole(self.run.exit, ended)
        return ended

    def _reap(self) -> None:
        """Our children: the launcher, and what it left to us when it died."""
        while os.name != "nt":
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reaped[pid] = status

    def _beat_heart(self) -> None:
        if time.monotonic() - self._beat >= HEARTBEAT:
            self._beat = time.monotonic()
            with open(self.run.heartbeat, "ab"):
                os.utime(self.run.heartbeat)

    # -- the end -----------------------------------------------------------------------------------

    def conclude(self, ended: Dict[str, Any]) -> None:
        facts = self._started_facts()
        kills = machine.oom_kills()
        before = facts.get("oom_kills") if facts else None
        oom = kills is not None and before is not None and kills > before
        ending, reason = endings.decide(ended, self.stop, self.forced, oom)
        if ending == endings.TIMEOUT:
            reason = "stopped after the time limit of %g s" % self.spec["timeout"]
        elif self.stop == "cancel":
            reason = "cancelled by %s" % ((read_json(self.run.cancel) or {}).get("by") or "somebody")
        if ending == endings.FAILED:
            reason = self._explain(ended)
            if _full(self.run.path):
                reason += "; the disk that holds %s is full" % self.run.path
            if oom:
                reason += "; meanwhile the kernel killed a process of this machine for want of memory"
        self.finish(ending, reason, ended)

    def _explain(self, ended: Dict[str, Any]) -> str:
        """What the log says of the failure. What the script prints of a secret stays in the log."""
        from .cause import explain, read_tail  # noqa: PLC0415 - regular expressions that an idle supervisor need not hold

        python = self.spec["commands"][-1]["argv"][0]
        if self._secrets is None and self.spec.get("secrets"):
            return explain("", self.run.work, python, ended["code"], ended["signal"])
        cause = explain(read_tail(self.run.log), self.run.work, python, ended["code"], ended["signal"])
        for value in (self._secrets or {}).values():
            cause = cause.replace(value, "***")
        return cause

    def finish(self, ending: str, reason: Optional[str], ended: Optional[Dict[str, Any]]) -> None:
        """Tell the ending, once."""
        if "finished" in self.journal.kinds:
            return
        facts = read_json(self.run.started)
        data: Dict[str, Any] = {"ending": ending, "cause": reason, "log_size": _size(self.run.log)}
        if ended:
            data.update(exit=ended["code"], signal=ended["signal"], ended=ended["ended"], elapsed=ended["elapsed"])
            data.update(self._collect())
            data["leftovers"] = [pid for pid, _ in self.family(facts)]
        failpoint("finishing")
        self.journal.add("finished", data, lasting=True)
        self._settle()
        failpoint("finished")
        drop_room(self.run)
        if data.get("leftovers"):
            return  # something of the run still lives and may write into its work copy
        try:
            recycle(self.root, self.spec["snapshot"], self.spec["project_id"], self.run)
        except OSError as error:
            log("the work copy could not be kept for the next run: %s" % error)

    def family(self, facts: Optional[Dict[str, Any]]) -> List[Tuple[int, int]]:
        """All living processes of the user's, the main one last."""
        if facts is None:
            return machine.family(self.run.path, [os.getpid()], [])
        main = (facts["pid"], facts["start"])
        # Once the main process is dead, its number may be another's session.
        sessions = [facts["pid"]] if _alive(main) else []
        found = machine.family(self.run.path, [os.getpid(), facts["launcher"], facts["pid"]], sessions)
        return found + ([main] if _alive(main) else [])

    def _collect(self) -> Dict[str, Any]:
        from .outputs import list_outputs  # noqa: PLC0415 - hashing loads megabytes that an idle supervisor must not hold

        found = list_outputs(self.run.outputs)
        try:
            write_whole(self.run.manifest, {"outputs": found})
        except OSError as error:
            log("the list of outputs could not be written: %s" % error)
        return {"outputs": len(found), "output_bytes": sum(one["size"] for one in found)}


class Stopping:
    """Cancel and time limit: TERM, grace, KILL of the whole tree, daemonised children too."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._of = supervisor
        self._deadline: Optional[float] = None
        self._killed: Optional[float] = None
        self._told_stuck = False

    def look(self, facts: Optional[Dict[str, Any]]) -> None:
        """Called often while the run goes on."""
        if facts is None:
            return
        if self._deadline is None:
            self._begin_if_asked(facts)
        elif time.monotonic() >= self._deadline:
            self._kill(facts)

    def _begin_if_asked(self, facts: Dict[str, Any]) -> None:
        supervisor = self._of
        limit = supervisor.spec.get("timeout")
        if os.path.exists(supervisor.run.cancel):
            request = read_json(supervisor.run.cancel) or {}
            self._begin("cancel", request.get("grace"), facts, request.get("by"))
        elif limit is not None and time.monotonic() - facts["clock"] >= limit:
            self._begin("timeout", None, facts, None)

    def _begin(self, why: str, grace: Optional[float], facts: Dict[str, Any], by: Optional[str]) -> None:
        supervisor = self._of
        supervisor.stop = supervisor.stop or why
        seconds = supervisor.spec["grace"] if grace is None else grace
        self._note()
        supervisor.journal.add("stopping", {"why": supervisor.stop, "by": by, "grace": seconds})
        self._deadline = time.monotonic() + seconds
        machine.signal_all(self._of.family(facts), signal.SIGTERM)
        failpoint("terminated")

    def _note(self) -> None:
        """Before a signal is sent, so that a successor knows whose doing the end is."""
        supervisor = self._of
        write_whole(supervisor.run.stopping, {"by": supervisor.stop, "forced": supervisor.forced})

    def _kill(self, facts: Dict[str, Any]) -> None:
        supervisor = self._of
        if not supervisor.forced:
            supervisor.forced = True
            self._note()
        self._killed = self._killed or time.monotonic()
        kill_all(lambda: self._of.family(facts))
        if time.monotonic() - self._killed > STUCK and not self._told_stuck:
            self._told_stuck = True
            pids = [pid for pid, _ in self._of.family(facts)]
            supervisor.journal.add("stopping", {"why": supervisor.stop, "stuck": pids})

    def sweep(self, facts: Optional[Dict[str, Any]]) -> None:
        """The main process has ended on our word: what it left behind gets the rest of the grace, then KILL."""
        if self._deadline is None or facts is None:
            return
        while self._of.family(facts):
            if time.monotonic() >= self._deadline:
                self._kill(facts)
                if self._told_stuck:
                    return
            time.sleep(0.05)


def kill_all(family: Callable[[], List[Tuple[int, int]]]) -> None:
    """First stop them all, so that none can fork away from us, then kill."""
    stopped: Dict[Tuple[int, int], bool] = {}
    for _ in range(20):
        new = [one for one in family() if one not in stopped]
        if not new:
            break
        machine.signal_all(new, getattr(signal, "SIGSTOP", signal.SIGTERM))
        stopped.update(dict.fromkeys(new, True))
    machine.signal_all(stopped, getattr(signal, "SIGKILL", signal.SIGTERM))


def _alive(process: Tuple[Optional[int], Optional[int]]) -> bool:
    pid, start = process
    return pid is not None and start is not None and machine.start_time(pid) == start


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _full(path: str) -> bool:
    if not hasattr(os, "statvfs"):
        return False
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize < RESERVE


def log(text: str) -> None:
    """Our own troubles go to supervisor.log, which is our stderr."""
    sys.stderr.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text))
    sys.stderr.flush()
