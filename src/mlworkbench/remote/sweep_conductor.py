"""The conductor of a sweep: starts and watches its children, and records the ending.

A limited number of children run at a time. The conductor is the supervisor of the parent run: it
holds the lock of that run, may die at any moment, and keeps its state on disk. The next child that ends, or the
next contact, starts a new conductor. Children are ordinary runs.
"""

from __future__ import annotations

import json
import os
import time

from . import sweep_log
from .child_spec_file import read_child
from .claim import claim
from .client_registry import accepted_data, root_identity
from .heartbeat import Heartbeat
from .journal import Journal, log, release_reserve, reserve_space
from .launcher import decide_start
from .markers import read_start_decision
from .pending_ending import retry_until_written
from .shared import machine, run_endings
from .shared.atomic_files import read_json, write_once
from .shared.failpoint import failpoint
from .shared.failure import failure, parse_failure
from .shared.layout import Root, RunFolder
from .shared.untrusted_json import parse_json
from .supervisor import Supervisor

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional

    from .run_spec import Spec
    from .shared.failure import Reason

    Facts = Dict[str, Any]
    RunCommand = Callable[[Root, RunFolder, List[str], Facts], Facts]
    Commands = Mapping[str, RunCommand]

CHECK_INTERVAL = 0.4  # maximum seconds until a cancel is noticed
QUICK_INTERVAL, QUICK_PERIOD = 0.05, 5.0  # seconds; for more frequent checks until the first child has started
ADOPT_INTERVAL, SCHEDULED_INTERVAL = 1.0, 30.0  # seconds between attempts to start a new supervisor; for jobs
RETRY_INTERVAL = 5.0  # seconds before retrying to start a child
_NO_SECRETS = "the run's secrets are lost: the process that held them in memory was killed; submit the run again"


class SweepConductor:
    """One conductor process. ``secrets`` is None if the secrets are lost; ``commands`` control the children."""

    def __init__(
        self, root: Root, run: RunFolder, spec: Spec, secrets: Optional[Dict[str, str]], commands: Commands
    ) -> None:
        self.root = root
        self.run = run
        self.spec = spec
        self.journal = Journal(run)
        self.on_settled: Callable[[], None] = lambda: None  # called once, when the state of the sweep is known
        self._secrets = secrets
        self._commands = commands
        self._root_id = root_identity(root)  # to detect a root that was replaced by another folder
        self._order: List[str] = [str(name) for name in spec["sweep"]["children"]]
        self._waiting: List[str] = []
        self._running: List[str] = []
        self._ended: Dict[str, Facts] = {}
        self._names: Dict[str, str] = {}
        self._reported = sweep_log.reported_children(run.log)
        self._parallel = 0
        self._stopping: Optional[Facts] = None
        self._adopted_at: Dict[str, float] = {}
        self._next_start = 0.0
        self._last_error = ""
        self._heartbeat = Heartbeat(run)

    def begin(self) -> None:
        """Conduct a new sweep from its claim to its end."""
        self.journal.add("accepted", accepted_data(self.root))
        failpoint("sweep-accepted")
        try:
            reserve_space(self.run)
        except OSError as error:
            log("cannot reserve disk space: %s" % error)
        self.resume()

    def resume(self) -> None:
        """Continue the sweep to its end, based on its files."""
        self._restore()
        may_start = decide_start(self.run, "start") or (read_start_decision(self.run) or {}).get("decision") == "start"
        self._notify_settled()
        wait, quick_until = machine.make_waiter(None), time.monotonic() + QUICK_PERIOD
        while True:
            _reap_children()
            self._check_children()
            if not may_start or os.path.exists(self.run.cancel):
                self._stop()
            else:
                self._start_children()
            self._record_start()
            if not self._running and not self._waiting:
                break
            self._heartbeat.beat()
            is_early = time.monotonic() < quick_until and "started" not in self.journal.kinds
            wait(QUICK_INTERVAL if is_early else CHECK_INTERVAL)
        self._finish()

    def _restore(self) -> None:
        """Determine from their folders which children are waiting, are running, or have ended."""
        for name in self._order:
            child = self.root.run(name)
            if not os.path.exists(child.owner):
                self._waiting.append(name)
                continue
            finished = sweep_log.read_finished(child)
            if finished is None or machine.is_locked(child.lock):
                self._running.append(name)
            else:
                self._record_end(name, finished)

    def _notify_settled(self) -> None:
        callback, self.on_settled = self.on_settled, lambda: None
        callback()

    # -- start ---------------------------------------------------------------------------------------------------

    def _start_children(self) -> None:
        """Start children up to the limit."""
        reason = self._find_environment_failure()
        while self._waiting and (reason or len(self._running) < self._limit()) and time.monotonic() >= self._next_start:
            name = self._waiting[0]
            if reason:
                self._skip_child(name, reason, run_endings.ENVIRONMENT_FAILED)
                continue
            problem = self._start_child(name)
            if problem is not None:
                self._next_start = time.monotonic() + RETRY_INTERVAL
                self._log_problem("cannot start %s: %s; retrying" % (self._display_name(name), problem))

    def _limit(self) -> int:
        """Return how many children may run at once: the requested number, or as many as GPUs allow."""
        if not self._parallel:
            requested = self.spec["sweep"].get("parallel")
            self._parallel = int(requested) if requested else _count_gpu_slots(self.spec.get("gpus"))
        return self._parallel

    def _start_child(self, name: str) -> "Optional[str]":
        """Start a waiting child. Return the problem, if any."""
        child = self.root.run(name)
        if not os.path.exists(child.owner):
            spec = read_child(self.root, self.run, self.spec, name)
            if spec is None:
                self._waiting.remove(name)
                self._record_end(name, run_endings.outcome(run_endings.TARGET_LOST, "the run's spec file is missing"))
                return None
            if self._secrets is None and spec.get("secrets"):
                self._skip_child(name, _NO_SECRETS, run_endings.COULD_NOT_START)
                return None
            try:
                if sweep_log.is_disk_full(self.run.path):
                    return "the disk that holds %s is full" % self.root.path
                response = self._run_start_command(child, {"spec": spec, "secrets": self._secrets or {}})
            except OSError as error:
                return str(error)
            if not response.get("ok"):
                return str(response.get("problem"))
            if not response.get("claimed") and not response.get("owner"):
                return "another process holds the run's lock"
        failpoint("sweep-started")
        self._waiting.remove(name)
        self._running.append(name)
        self._write_log("started %s %s" % (self._display_name(name), name))
        return None

    def _run_start_command(self, child: RunFolder, message: Facts) -> Facts:
        nonce = os.urandom(8).hex()
        if machine.CAN_FORK:
            return self._commands["start"](self.root, child, [nonce], message)
        import subprocess  # noqa: PLC0415 - Windows; untested
        import sys  # noqa: PLC0415

        main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
        argv = [sys.executable, "-I", "-S", main, "start", self.root.path, os.path.basename(child.path), nonce]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, creationflags=machine.DETACHED, start_new_session=True
        )
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(message).encode("ascii"))
        process.stdin.close()
        response: Facts = parse_json(process.stdout.read())
        return response

    def _record_start(self) -> None:
        """Record the start of the sweep when a child has started. Until then, show the build log of the first child."""
        if "started" in self.journal.kinds:
            return
        started = [self.root.run(name) for name in self._order if name in self._running or name in self._ended]
        try:
            if started:
                sweep_log.copy_new_bytes(started[0].build_log, self.run.build_log)
            moments = [moment for moment in map(sweep_log.read_start_time, started) if moment is not None]
            if moments:
                self.journal.add("started", {"pid": os.getpid(), "time": min(moments)})
        except OSError as error:
            log("cannot record the start: %s" % error)

    def _find_environment_failure(self) -> "Optional[Reason]":
        """Return why the environment failed, or None. All children share it, so no other child could start."""
        if not self._waiting or not self._ended:
            return None
        endings_data = list(self._ended.values())
        if any(finished.get("ending") != run_endings.ENVIRONMENT_FAILED for finished in endings_data):
            return None
        if any(sweep_log.read_start_time(self.root.run(name)) is not None for name in self._running):
            return None  # a child has started, so the problem was temporary
        return parse_failure(endings_data[0].get("failure")) or str(endings_data[0].get("cause"))

    def _skip_child(self, name: str, reason: Reason, ending: str) -> None:
        """Record why a child never starts, without starting a process for it."""
        child = self.root.run(name)
        try:
            spec = read_child(self.root, self.run, self.spec, name)
            if spec is not None and not self._close_child(child, spec, reason, ending):
                self._waiting.remove(name)
                self._running.append(name)  # another process is already supervising it
                return
        except OSError as error:
            log("cannot record the end of %s: %s" % (name, error))
        self._waiting.remove(name)
        self._record_end(name, sweep_log.read_finished(child) or run_endings.outcome(ending, reason))

    def _close_child(self, child: RunFolder, spec: Spec, reason: Reason, ending: str) -> bool:
        os.makedirs(child.path, mode=0o700, exist_ok=True)
        if read_json(child.spec) is None:
            write_once(child.spec, dict(spec))
        lock = machine.lock(child.lock)
        if lock is None:
            return False
        try:
            if not claim(child, os.urandom(8).hex()):
                return False
            supervisor = Supervisor(self.root, child, spec, 0o077)  # it starts nothing
            try:
                supervisor.journal.add("accepted", accepted_data(self.root))
                decision = read_start_decision(child)
                if decision and decision["decision"] == "never":  # canceled; resume() would keep descriptors open
                    supervisor.finish_unstarted(decision)
                else:
                    supervisor.refuse_start(reason, ending)
            finally:
                supervisor.journal.close()
            return True
        finally:
            os.close(lock)

    # -- watch ---------------------------------------------------------------------------------------------------

    def _check_children(self) -> None:
        """Record children that have ended, and replace supervisors that have died."""
        for name in list(self._running):
            child = self.root.run(name)
            if machine.is_locked(child.lock):
                continue
            finished = sweep_log.read_finished(child)
            if finished is None and time.monotonic() - self._adopted_at.get(name, -ADOPT_INTERVAL) >= ADOPT_INTERVAL:
                self._adopted_at[name] = time.monotonic()
                finished = self._adopt(child)
            if finished is not None:
                self._running.remove(name)
                self._record_end(name, finished)

    def _adopt(self, child: RunFolder) -> "Optional[Facts]":
        try:
            state = self._commands["adopt"](self.root, child, [], {"root": self._root_id}).get("state")
        except OSError as error:
            log("%s has no supervisor: %s" % (child.path, error))
            return None
        if state == "scheduled":  # this is needed only for a job that could not record its own end
            self._adopted_at[os.path.basename(child.path)] += SCHEDULED_INTERVAL - ADOPT_INTERVAL
        return run_endings.outcome(run_endings.TARGET_LOST, "the run's folder is gone") if state == "lost" else None

    def _record_end(self, name: str, finished: Facts) -> None:
        self._ended[name] = finished
        if name in self._reported:
            return
        position = "%d/%d" % (len(self._reported) + 1, len(self._order))
        fields = [position, self._display_name(name), sweep_log.outcome_text(finished)]
        metric = self.spec["sweep"].get("metric")
        value = sweep_log.read_last_value(self.root.run(name), metric) if metric else None
        if value is not None:
            fields.append("%s=%s" % (metric, value))
        if self._write_log(" ".join([*fields, name])):
            self._reported.add(name)

    # -- end -----------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Cancel the running children, and do not start any more."""
        request = read_json(self.run.cancel) or {}
        if request != self._stopping:  # a first cancel, or a second one with a shorter grace period
            if self._stopping is None:
                self.journal.add("stopping", {"why": "cancel", "grace": request.get("grace")})
            self._stopping = request
            for name in self._running:
                self._cancel(name)
        while self._waiting:
            name = self._waiting[0]
            self._cancel(name)
            self._skip_child(name, "canceled before it started", run_endings.CANCELLED)

    def _cancel(self, name: str) -> None:
        request = self._stopping or {}
        arguments = [str(request.get("by") or "an unknown user")]
        if request.get("grace") is not None:
            arguments.append(str(request["grace"]))
        message: Facts = {}
        spec = read_child(self.root, self.run, self.spec, name)
        if spec is not None:
            message["spec"] = spec
        try:
            self._commands["cancel"](self.root, self.root.run(name), arguments, message)
        except (OSError, ValueError) as error:
            log("cannot ask %s to stop: %s" % (name, error))

    def _finish(self) -> None:
        if "finished" in self.journal.kinds:
            return
        ending, reason = self._decide_ending()
        log_size = sweep_log.file_size(self.run.log)
        data: Facts = dict(run_endings.outcome(ending, reason), log_size=log_size, ended=time.time())
        if ending == run_endings.FAILED:
            data["exit"] = 1
        failpoint("sweep-finishing")
        self.journal.add("finished", data, durable=True)
        retry_until_written(self.run, self.journal.flush, "the event journal", self._notify_settled)
        release_reserve(self.run)

    def _decide_ending(self) -> "tuple[str, Optional[Reason]]":
        finished = [(name, self._ended[name]) for name in self._order if name in self._ended]
        others = [(name, data) for name, data in finished if data.get("ending") != run_endings.SUCCEEDED]
        failed = [item for item in others if not str(item[1].get("ending")).startswith(run_endings.CANCELLED)]
        canceled = "%d of %d children %s canceled" % (len(others), len(finished), "was" if len(others) == 1 else "were")
        if self._stopping is not None and others:
            by = "canceled by %s" % (self._stopping.get("by") or "an unknown user")
            return run_endings.CANCELLED, by if "started" in self.journal.kinds else "canceled before it started"
        if failed:
            summary = sweep_log.summarize_failures([(self._display_name(name), data) for name, data in failed])
            count = "%d of %d children failed: " % (len(failed), len(finished))
            text = count + summary["message"]
            return run_endings.FAILED, failure(summary["code"], text, summary["hint"], summary["explain"])
        if others and len(others) == len(finished):
            return run_endings.CANCELLED, canceled
        return run_endings.SUCCEEDED, canceled if others else None

    # -- text ----------------------------------------------------------------------------------------------------

    def _display_name(self, name: str) -> str:
        """Return the display name of a child, which consists of its values."""
        if name not in self._names:
            spec = read_child(self.root, self.run, self.spec, name) or {}
            self._names[name] = " ".join(str(spec.get("name") or name).split())
        return self._names[name]

    def _log_problem(self, text: str) -> None:
        if text != self._last_error:
            self._last_error = text
            log(text)
            self._write_log(text)

    def _write_log(self, text: str) -> bool:
        try:
            sweep_log.append_line(self.run, text)
            return True
        except OSError as error:
            log("the log cannot be written: %s" % error)
            return False


def _count_gpu_slots(requested: "Optional[str]") -> int:
    """Return how many requests of this kind the GPUs of this machine can satisfy at once."""
    if requested in (None, "none"):
        return 1
    from .gpus.gpu_selection import GpuUnavailable, find_candidates  # noqa: PLC0415
    from .gpus.inventory_process import query_gpus  # noqa: PLC0415 - only for GPU sweeps
    from .shared.gpu_request import COUNT, parse  # noqa: PLC0415

    try:
        request = parse(str(requested))
        return max(1, len(find_candidates(request, query_gpus())) // request.count) if request.kind == COUNT else 1
    except (GpuUnavailable, ValueError, OSError):
        return 1  # the children report the problem


def _reap_children() -> None:
    """Reap supervisors started by this process."""
    try:
        while machine.CAN_FORK and os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
