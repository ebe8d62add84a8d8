"""The state of a Spark application, computed from its events: progress, executors, and problems.

This module performs no I/O. A day's events can amount to gigabytes, almost all of them successful tasks.
Only the start of those lines is parsed.
"""

from __future__ import annotations

from ..shared.untrusted_json import parse_json

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Facts = Dict[str, Any]

_EVENT_PREFIX = b'{"Event":"SparkListener'
_SUCCESS = b'"Task End Reason":{"Reason":"Success"}'
_HEAD_LENGTH = 400
_MAX_OPEN = 500  # maximum jobs, stages, and executors tracked (each)
_MAX_STAGES = 5000  # maximum over all open jobs
_MAX_PARENTS = 32  # maximum per stage
_MAX_HOSTS = 64  # maximum hosts with GPUs, and GPUs per host
MAX_REPORTED = {"executor": 5, "task": 5, "stage": 3, "job": 3}  # per kind; further problems are only counted
# Removals that are not losses: requested by the driver, or an orderly shutdown by the cluster.
_EXPECTED_REMOVALS = ("Executor killed by driver", "Executor decommission", "Executor Process Lost due to decommission")
_HARMLESS = ("TaskKilled", "TaskCommitDenied", "Resubmitted")


class Application:
    """State of one application.

    ``data`` is the complete state, as saved on disk. ``work`` is the working folder, which is removed
    from paths in messages.
    """

    def __init__(self, work: str, data: Optional[Facts] = None) -> None:
        self._work = work
        self.problems: List[Facts] = []  # not reported yet
        self.data: Facts = data or {
            "app": None,
            "version": None,
            "master": None,
            "settings": {},
            "jobs": {"total": 0, "done": 0, "failed": 0},
            "open": {},  # job → stage → [tasks, parent stages], for stages not yet submitted
            "stages": {"begun": 0, "done": 0, "failed": 0},
            "again": [],  # failed stages that may be retried
            "running": {},  # stage.attempt → [tasks, done]
            "tasks": {"total": 0, "done": 0, "failed": 0},  # in completed stages
            "executors": {},
            "seen": 0,
            "most": 0,
            "lost": 0,
            "given": {},  # host → addresses of its executors' GPUs
            "counts": {},
            "failure": None,  # the last stage or job failure
            "ended": False,
        }
        self._handlers: Dict[bytes, Callable[[Facts], None]] = {
            b"LogStart": self._log_start,
            b"ApplicationStart": self._application_start,
            b"EnvironmentUpdate": self._environment,
            b"JobStart": self._job_start,
            b"JobEnd": self._job_end,
            b"StageSubmitted": self._stage_submitted,
            b"StageCompleted": self._stage_completed,
            b"TaskEnd": self._task_end,
            b"ExecutorAdded": self._executor_added,
            b"ExecutorRemoved": self._executor_removed,
            b"ApplicationEnd": self._application_end,
        }

    def feed(self, line: bytes) -> None:
        """Process a line of the event log. Lines that are not relevant events are ignored."""
        if not line.startswith(_EVENT_PREFIX):
            return
        name = line[len(_EVENT_PREFIX) : len(_EVENT_PREFIX) + 40].partition(b'"')[0]
        handler = self._handlers.get(name)
        if handler is None or (name == b"TaskEnd" and self._count_success(line[:_HEAD_LENGTH])):
            return
        try:
            handler(parse_json(line.decode("utf-8", "replace")))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError):
            return  # an invalid line: the script can also write to the log

    # -- the application -------------------------------------------------------------------------------------

    def _log_start(self, event: Facts) -> None:
        self.data["version"] = _bounded_text(event.get("Spark Version"), 60)

    def _application_start(self, event: Facts) -> None:
        self.data["app"] = _bounded_text(event.get("App ID"), 200)

    def _environment(self, event: Facts) -> None:
        settings = event["Spark Properties"]
        if isinstance(settings, list):  # pairs, before Spark 3
            settings = dict(settings)
        self.data["master"] = _bounded_text(settings.get("spark.master"), 200)
        self.data["settings"] = {name: _bounded_text(settings[name], 200) for name in _SETTINGS if name in settings}

    def _application_end(self, event: Facts) -> None:
        self.data["ended"] = True

    # -- jobs and stages -------------------------------------------------------------------------------------

    def _job_start(self, event: Facts) -> None:
        job, jobs = str(int(event["Job ID"])), self.data["open"]
        self.data["jobs"]["total"] += 1
        if len(jobs) >= _MAX_OPEN:
            return
        # A stage that was submitted for an earlier job is reused, so it is not pending.
        capacity = _MAX_STAGES - sum(len(stages) for stages in jobs.values())
        pending = [stage for stage in event["Stage Infos"][: max(0, capacity)] if not stage.get("Submission Time")]
        jobs[job] = {
            str(int(stage["Stage ID"])): [_bounded_count(stage["Number of Tasks"]), _parent_ids(stage)]
            for stage in pending
        }

    def _job_end(self, event: Facts) -> None:
        """Close a job. Its stages that were never submitted no longer count: Spark skips them."""
        self.data["open"].pop(str(int(event["Job ID"])), None)
        result = event["Job Result"]
        if result.get("Result") == "JobSucceeded":
            self.data["jobs"]["done"] += 1
            return
        self.data["jobs"]["failed"] += 1
        text = self._summarize_reason((result.get("Exception") or {}).get("Message"))
        if text != (self.data["failure"] or {}).get("reason"):  # otherwise, it was reported with its stage
            self._fail("job", {"job": int(event["Job ID"]), "reason": text})

    def _stage_submitted(self, event: Facts) -> None:
        info = event["Stage Info"]
        stage, attempt, tasks = (
            str(int(info["Stage ID"])),
            int(info["Stage Attempt ID"]),
            _bounded_count(info["Number of Tasks"]),
        )
        for pending in self.data["open"].values():
            # The stage's inputs are available, so Spark skips all earlier stages that were not submitted.
            skipped = [stage, *_parent_ids(info)]
            while skipped:
                skipped += pending.pop(skipped.pop(), [0, []])[1]
        if attempt == 0:
            self.data["stages"]["begun"] += 1
        if len(self.data["running"]) < _MAX_OPEN:
            self.data["running"]["%s.%d" % (stage, attempt)] = [tasks, 0]

    def _stage_completed(self, event: Facts) -> None:
        info = event["Stage Info"]
        stage, attempt = int(info["Stage ID"]), int(info["Stage Attempt ID"])
        tasks, done = self.data["running"].pop("%d.%d" % (stage, attempt), [0, 0])
        failure = info.get("Failure Reason")
        totals, stages, failed_before = self.data["tasks"], self.data["stages"], self.data["again"]
        totals["total"] += done if failure else tasks
        totals["done"] += done if failure else tasks
        if not failure:
            if attempt == 0 or stage in failed_before:  # otherwise, a completed stage ran again
                stages["done"] += 1
            if stage in failed_before:
                failed_before.remove(stage)
            return
        stages["failed"] += 1
        if stage not in failed_before and len(failed_before) < _MAX_OPEN:
            failed_before.append(stage)
        name = str(info.get("Stage Name") or "").replace(self._work + "/", "")[:200]
        self._fail("stage", {"stage": stage, "name": name, "reason": self._summarize_reason(failure)})

    def _fail(self, kind: str, problem: Facts) -> None:
        self.data["failure"] = problem
        self._add_problem(kind, problem)

    def _summarize_reason(self, text: Any) -> str:
        from .spark_reasons import summarize  # noqa: PLC0415 - only needed after failures

        return summarize(text, self._work) if isinstance(text, str) else ""

    # -- tasks -----------------------------------------------------------------------------------------------

    def _count_success(self, head: bytes) -> bool:
        """Count a successful task and return True, or return False for any other task.

        The line starts with ``{"Event":"SparkListenerTaskEnd","Stage ID":0,"Stage Attempt ID":0,"Task
        Type":…``.
        """
        if _SUCCESS not in head:
            return False
        parts = head.split(b",", 3)
        try:
            stage, attempt = (int(part.partition(b":")[2]) for part in parts[1:3])
        except ValueError:
            return True
        running = self.data["running"].get("%d.%d" % (stage, attempt))
        if running is not None and running[1] < running[0]:
            running[1] += 1
        return True

    def _task_end(self, event: Facts) -> None:
        reason, info = event["Task End Reason"], event.get("Task Info") or {}
        if reason.get("Reason") in _HARMLESS or reason.get("Reason") == "Success":
            return
        self.data["tasks"]["failed"] += 1
        if reason.get("Reason") == "ExecutorLostFailure":
            return  # reported with the executor
        problem = {"stage": int(event["Stage ID"]), "executor": _bounded_text(info.get("Executor ID"), 100)}
        problem["host"] = _bounded_text(info.get("Host"), 200)
        if self._is_below_limit("task"):
            from .spark_reasons import task_cause  # noqa: PLC0415 - as above

            problem["reason"] = task_cause(reason, self._work)
        self._add_problem("task", problem)

    # -- executors -------------------------------------------------------------------------------------------

    def _executor_added(self, event: Facts) -> None:
        name, info = str(event["Executor ID"])[:100], event["Executor Info"]
        if name == "driver":  # the driver itself, with a local master
            return
        gpus = ((info.get("Resources") or {}).get("gpu") or {}).get("addresses") or []
        executor: Facts = {
            "host": _bounded_text(info.get("Host"), 200),
            "cores": _bounded_count(info.get("Total Cores") or 0),
        }
        executor["gpus"] = [str(address)[:40] for address in gpus[:16]]
        self.data["seen"] += 1
        if executor["gpus"] and len(self.data["given"]) < _MAX_HOSTS:
            host_gpus = self.data["given"].setdefault(str(executor["host"]), [])
            host_gpus += [
                address for address in executor["gpus"] if address not in host_gpus and len(host_gpus) < _MAX_HOSTS
            ]
        if len(self.data["executors"]) < _MAX_OPEN:
            self.data["executors"][name] = executor
        self.data["most"] = max(self.data["most"], len(self.data["executors"]))

    def _executor_removed(self, event: Facts) -> None:
        name = str(event["Executor ID"])[:100]
        executor = self.data["executors"].pop(name, None) or {}
        reason = str(event.get("Removed Reason") or "")
        if reason.startswith(_EXPECTED_REMOVALS) or self.data["ended"]:
            return
        self.data["lost"] += 1
        problem = {
            "executor": name,
            "host": executor.get("host"),
            "reason": self._summarize_reason(reason),
            "left": self._executor_count(),
        }
        self._add_problem("executor", problem)

    # -- reporting -------------------------------------------------------------------------------------------

    def _is_below_limit(self, kind: str) -> bool:
        return bool(self.data["counts"].get(kind, 0) < MAX_REPORTED[kind])

    def _add_problem(self, kind: str, problem: Facts) -> None:
        is_reported = self._is_below_limit(kind)
        self.data["counts"][kind] = self.data["counts"].get(kind, 0) + 1
        if is_reported:
            self.problems.append(dict(problem, what=kind, app=self.data["app"]))

    def _executor_count(self) -> int:
        return len(self.data["executors"])

    def progress(self) -> Facts:
        """Return the data for a progress event, without the list of executors."""
        data = self.data
        pending: Dict[str, Any] = {}
        for stages in data["open"].values():
            pending.update(stages)
        running, waiting = list(data["running"].values()), sum(count for count, _ in pending.values())
        tasks, stages = data["tasks"], data["stages"]
        return {
            "app": data["app"],
            "jobs": dict(data["jobs"]),
            "stages": {"done": stages["done"], "total": stages["begun"] + len(pending), "failed": stages["failed"]},
            "tasks": {
                "done": tasks["done"] + sum(done for _, done in running),
                "total": tasks["total"] + sum(count for count, _ in running) + waiting,
                "failed": tasks["failed"],
            },
            "executors": {"now": self._executor_count(), "most": data["most"], "lost": data["lost"]},
            "ended": data["ended"],
        }

    def members(self, limit: int = 32) -> List[Facts]:
        """Return the first ``limit`` current executors with their resources."""
        executors = list(self.data["executors"].items())[:limit]
        return [dict(executor, executor=name) for name, executor in executors]


_SETTINGS = (
    "spark.ui.port",
    "spark.ui.enabled",
    "spark.ssl.enabled",
    "spark.ssl.ui.enabled",
    "spark.yarn.historyServer.address",
    "spark.executor.resource.gpu.amount",
)


def _parent_ids(info: Facts) -> List[str]:
    return [str(int(parent)) for parent in (info.get("Parent IDs") or ())[:_MAX_PARENTS]]


def _bounded_count(value: Any) -> int:
    """Return a count, limited to a valid range: a script may write invalid numbers."""
    return min(max(0, int(value)), 1 << 40)


def _bounded_text(value: Any, length: int) -> Optional[str]:
    return value[:length] if isinstance(value, str) else None
