"""The conductor of a sweep: starts its children, so many at a time, watches over them, tells how all of it ended.

It is to the parent what a supervisor is to a run: holds its lock, may die at any moment, and what it knows is on
disk. The next child that ends, or the next contact, puts a new one to work. Children are runs like all others.
"""

from __future__ import annotations

import json
import os
import time

from .children import read_child
from .claim import claim
from .clients import acceptance, root_identity
from .heartbeat import Heartbeat
from .journal import Journal, drop_room, keep_room, log
from .launcher import pass_gate
from .notes import read_gate
from .pending_ending import until_written
from .progress import failures, how_ended, is_full, last_value, outcome, relay, say, size, told_in, when_started
from .shared import endings, machine
from .shared.failpoint import failpoint
from .shared.failure import checked, failure
from .shared.files import read_json, write_first
from .shared.layout import Root, RunFolder
from .shared.untrusted import parse_json
from .supervisor import Supervisor

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional

    from .run_spec import Spec
    from .shared.failure import Reason

    Facts = Dict[str, Any]
    Verb = Callable[[Root, RunFolder, List[str], Facts], Facts]

LOOK = 0.4  # how long a cancel may go unnoticed
QUICK, QUICK_FOR = 0.05, 5.0  # seconds between two looks before the first child has started, and for how long
AGAIN = 1.0  # seconds between attempts to put a new supervisor to work
PAUSE = 5.0  # seconds before a child that could not be started is tried again
_NO_SECRETS = "the run's secrets are lost: the process that held them in memory was killed; submit the run again"


class Conductor:
    """One incarnation. ``secrets`` is None where they are not known any more; ``verbs`` act on the children."""

    def __init__(
        self, root: Root, run: RunFolder, spec: Spec, secrets: "Optional[Dict[str, str]]", verbs: "Mapping[str, Verb]"
    ) -> None:
        self.root = root
        self.run = run
        self.spec = spec
        self.journal = Journal(run)
        self.settled: Callable[[], None] = lambda: None  # called once, when it is known how things stand
        self._secrets = secrets
        self._verbs = verbs
        self._root_id = root_identity(root)  # another folder may be in its place later
        self._order: List[str] = [str(name) for name in spec["sweep"]["children"]]
        self._waiting: List[str] = []
        self._running: List[str] = []
        self._ended: Dict[str, Facts] = {}
        self._names: Dict[str, str] = {}
        self._told = told_in(run.log)
        self._parallel = 0
        self._stopping: Optional[Facts] = None
        self._tried: Dict[str, float] = {}
        self._due = 0.0
        self._complaint = ""
        self._heartbeat = Heartbeat(run)

    def begin(self) -> None:
        """From the claim to the end of a new sweep."""
        self.journal.add("accepted", acceptance(self.root))
        failpoint("sweep-accepted")
        try:
            keep_room(self.run)
        except OSError as error:
            log("cannot reserve disk space: %s" % error)
        self.go_on()

    def go_on(self) -> None:
        """To the end, from what is on disk."""
        self._recall()
        may_start = pass_gate(self.run, "start") or (read_gate(self.run) or {}).get("decision") == "start"
        self._settle()
        wait, soon = machine.waiter(None), time.monotonic() + QUICK_FOR
        while True:
            _reap()
            self._look()
            if not may_start or os.path.exists(self.run.cancel):
                self._stop()
            else:
                self._fill()
            self._tell_start()
            if not self._running and not self._waiting:
                break
            self._heartbeat.beat()
            wait(QUICK if time.monotonic() < soon and "started" not in self.journal.kinds else LOOK)
        self._finish()

    def _recall(self) -> None:
        """Who waits, who runs, who has ended: the children's folders tell."""
        for name in self._order:
            child = self.root.run(name)
            if not os.path.exists(child.owner):
                self._waiting.append(name)
                continue
            told = how_ended(child)
            if told is None or machine.is_locked(child.lock):
                self._running.append(name)
            else:
                self._note_end(name, told)

    def _settle(self) -> None:
        settled, self.settled = self.settled, lambda: None
        settled()

    # -- starting ------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start children while there is room for them."""
        hopeless = self._environment_failed()
        while self._waiting and (hopeless or len(self._running) < self._most()) and time.monotonic() >= self._due:
            name = self._waiting[0]
            if hopeless:
                self._dismiss(name, hopeless, endings.ENVIRONMENT_FAILED)
                continue
            problem = self._start(name)
            if problem is not None:
                self._due = time.monotonic() + PAUSE
                self._complain("cannot start %s: %s; retrying" % (self._name(name), problem))

    def _most(self) -> int:
        """How many may run at once: as asked for, else as many as the GPUs here are enough for."""
        if not self._parallel:
            asked = self.spec["sweep"].get("parallel")
            self._parallel = int(asked) if asked else _slots(self.spec.get("gpus"))
        return self._parallel

    def _start(self, name: str) -> "Optional[str]":
        """The child goes from those that wait to those that run; else why not."""
        child = self.root.run(name)
        if not os.path.exists(child.owner):
            spec = read_child(self.root, self.run, self.spec, name)
            if spec is None:
                self._waiting.remove(name)
                self._note_end(name, endings.outcome(endings.TARGET_LOST, "the run's spec file is missing"))
                return None
            if self._secrets is None and spec.get("secrets"):
                self._dismiss(name, _NO_SECRETS, endings.COULD_NOT_START)
                return None
            try:
                if is_full(self.run.path):
                    return "the disk that holds %s is full" % self.root.path
                answer = self._begin(child, {"spec": spec, "secrets": self._secrets or {}})
            except OSError as error:
                return str(error)
            if not answer.get("ok"):
                return str(answer.get("problem"))
            if not answer.get("claimed") and not answer.get("owner"):
                return "another process holds the run's lock"
        failpoint("sweep-started")
        self._waiting.remove(name)
        self._running.append(name)
        self._say("started %s %s" % (self._name(name), name))
        return None

    def _begin(self, child: RunFolder, message: Facts) -> Facts:
        nonce = os.urandom(8).hex()
        if machine.FORKS:
            return self._verbs["start"](self.root, child, [nonce], message)
        import subprocess  # noqa: PLC0415 - Windows; untested
        import sys  # noqa: PLC0415

        main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
        words = [sys.executable, "-I", "-S", main, "start", self.root.path, os.path.basename(child.path), nonce]
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, creationflags=machine.DETACHED, start_new_session=True
        )
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(message).encode("ascii"))
        process.stdin.close()
        answer: Facts = parse_json(process.stdout.read())
        return answer

    def _tell_start(self) -> None:
        """The sweep has started when a child has; until then it shows what the preparation of the first one says."""
        if "started" in self.journal.kinds:
            return
        begun = [self.root.run(name) for name in self._order if name in self._running or name in self._ended]
        try:
            if begun:
                relay(begun[0].build_log, self.run.build_log)
            moments = [moment for moment in map(when_started, begun) if moment is not None]
            if moments:
                self.journal.add("started", {"pid": os.getpid(), "time": min(moments)})
        except OSError as error:
            log("cannot record the start: %s" % error)

    def _environment_failed(self) -> "Optional[Reason]":
        """All children share one environment: if the first ones could not have it, nobody can."""
        if not self._waiting or not self._ended:
            return None
        told = list(self._ended.values())
        if any(one.get("ending") != endings.ENVIRONMENT_FAILED for one in told):
            return None
        if any(when_started(self.root.run(name)) is not None for name in self._running):
            return None  # it was a trouble that has passed: this one has it
        return checked(told[0].get("failure")) or str(told[0].get("cause"))

    def _dismiss(self, name: str, reason: Reason, ending: str) -> None:
        """The child never starts, and its ending says why. Without a process of its own."""
        child = self.root.run(name)
        try:
            spec = read_child(self.root, self.run, self.spec, name)
            if spec is not None and not self._close(child, spec, reason, ending):
                self._waiting.remove(name)
                self._running.append(name)  # somebody else was quicker, and is at it
                return
        except OSError as error:
            log("cannot record the end of %s: %s" % (name, error))
        self._waiting.remove(name)
        self._note_end(name, how_ended(child) or endings.outcome(ending, reason))

    def _close(self, child: RunFolder, spec: Spec, reason: Reason, ending: str) -> bool:
        os.makedirs(child.path, mode=0o700, exist_ok=True)
        if read_json(child.spec) is None:
            write_first(child.spec, dict(spec))
        held = machine.lock(child.lock)
        if held is None:
            return False
        try:
            if not claim(child, os.urandom(8).hex()):
                return False
            supervisor = Supervisor(self.root, child, spec)
            try:
                supervisor.journal.add("accepted", acceptance(self.root))
                gate = read_gate(child)
                if gate and gate["decision"] == "never":  # a cancel; and what it would take over holds descriptors
                    supervisor.finish_unstarted(gate)
                else:
                    supervisor.never(reason, ending)
            finally:
                supervisor.journal.close()
            return True
        finally:
            os.close(held)

    # -- watching ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Children that have ended are told of; one whose supervisor has died gets a new one."""
        for name in list(self._running):
            child = self.root.run(name)
            if machine.is_locked(child.lock):
                continue
            told = how_ended(child)
            if told is None and time.monotonic() - self._tried.get(name, -AGAIN) >= AGAIN:
                self._tried[name] = time.monotonic()
                told = self._adopt(child)
            if told is not None:
                self._running.remove(name)
                self._note_end(name, told)

    def _adopt(self, child: RunFolder) -> "Optional[Facts]":
        try:
            state = self._verbs["adopt"](self.root, child, [], {"root": self._root_id}).get("state")
        except OSError as error:
            log("%s has no supervisor: %s" % (child.path, error))
            return None
        if state == "lost":
            return endings.outcome(endings.TARGET_LOST, "the run's folder is gone")
        return None

    def _note_end(self, name: str, told: Facts) -> None:
        self._ended[name] = told
        if name in self._told:
            return
        words = ["%d/%d" % (len(self._told) + 1, len(self._order)), self._name(name), outcome(told)]
        metric = self.spec["sweep"].get("metric")
        value = last_value(self.root.run(name), metric) if metric else None
        if value is not None:
            words.append("%s=%s" % (metric, value))
        if self._say(" ".join([*words, name])):
            self._told.add(name)

    # -- the end -------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Somebody asked for the end: of those that run, and no other starts."""
        asked = read_json(self.run.cancel) or {}
        if asked != self._stopping:  # also when it is asked again with less patience
            if self._stopping is None:
                self.journal.add("stopping", {"why": "cancel", "grace": asked.get("grace")})
            self._stopping = asked
            for name in self._running:
                self._cancel(name)
        while self._waiting:
            name = self._waiting[0]
            self._cancel(name)
            self._dismiss(name, "canceled before it started", endings.CANCELLED)

    def _cancel(self, name: str) -> None:
        asked = self._stopping or {}
        words = [str(asked.get("by") or "somebody")]
        if asked.get("grace") is not None:
            words.append(str(asked["grace"]))
        message: Facts = {}
        spec = read_child(self.root, self.run, self.spec, name)
        if spec is not None:
            message["spec"] = spec
        try:
            self._verbs["cancel"](self.root, self.root.run(name), words, message)
        except (OSError, ValueError) as error:
            log("cannot ask %s to stop: %s" % (name, error))

    def _finish(self) -> None:
        if "finished" in self.journal.kinds:
            return
        ending, reason = self._judge()
        data: Facts = dict(endings.outcome(ending, reason), log_size=size(self.run.log), ended=time.time())
        if ending == endings.FAILED:
            data["exit"] = 1
        failpoint("sweep-finishing")
        self.journal.add("finished", data, lasting=True)
        until_written(self.run, self.journal.flush, "the event journal", self._settle)
        drop_room(self.run)

    def _judge(self) -> "tuple[str, Optional[Reason]]":
        told = [(name, self._ended[name]) for name in self._order if name in self._ended]
        bad = [(name, one) for name, one in told if one.get("ending") != endings.SUCCEEDED]
        failed = [(name, one) for name, one in bad if not str(one.get("ending")).startswith(endings.CANCELLED)]
        cancelled = "%d of %d children %s canceled" % (len(bad), len(told), "was" if len(bad) == 1 else "were")
        if self._stopping is not None and bad:
            by = self._stopping.get("by")
            begun = "started" in self.journal.kinds
            return endings.CANCELLED, "canceled by %s" % (
                by or "an unknown user"
            ) if begun else "canceled before it started"
        if failed:
            known = failures([(self._name(name), one) for name, one in failed])
            count = "%d of %d children failed: " % (len(failed), len(told))
            return endings.FAILED, failure(known["code"], count + known["message"], known["hint"], known["explain"])
        if bad and len(bad) == len(told):
            return endings.CANCELLED, cancelled
        return endings.SUCCEEDED, cancelled if bad else None

    # -- words ---------------------------------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        """The child for people: its values."""
        if name not in self._names:
            spec = read_child(self.root, self.run, self.spec, name) or {}
            self._names[name] = " ".join(str(spec.get("name") or name).split())
        return self._names[name]

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            log(text)
            self._say(text)

    def _say(self, text: str) -> bool:
        try:
            say(self.run, text)
            return True
        except OSError as error:
            log("the log cannot be written: %s" % error)
            return False


def _slots(asked: "Optional[str]") -> int:
    """How many such requests the GPUs of this machine are enough for."""
    if asked in (None, "none"):
        return 1
    from .gpus.apart import look  # noqa: PLC0415 - sweeps without GPUs need none of it
    from .gpus.choice import Impossible, candidates  # noqa: PLC0415
    from .shared.gpu_request import COUNT, parse  # noqa: PLC0415

    try:
        request = parse(str(asked))
        return max(1, len(candidates(request, look())) // request.count) if request.kind == COUNT else 1
    except (Impossible, ValueError, OSError):
        return 1  # the children will tell


def _reap() -> None:
    """Supervisors that have ended: we started them."""
    try:
        while machine.FORKS and os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
