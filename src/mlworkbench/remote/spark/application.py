"""What is known of one application from its events: how far it is, its executors, what went wrong. Pure.

A day of events is gigabytes, nearly all of it of tasks that went well: of those only the beginning is looked at.
"""

from __future__ import annotations

from ..shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Facts = Dict[str, Any]

_EVENT = b'{"Event":"SparkListener'
_WELL = b'"Task End Reason":{"Reason":"Success"}'
_HEAD = 400
_MOST_OPEN = 500  # jobs, stages and executors that are followed, of each
_MOST_STAGES = 5000  # of all jobs that are open
_MOST_PARENTS = 32  # of a stage
_MOST_HOSTS = 64  # with GPUs, and GPUs of each
TOLD = {"executor": 5, "task": 5, "stage": 3, "job": 3}  # so many of each are told, the others are counted
# No loss: what the driver wanted, and what a cluster takes back in good order.
_WANTED = ("Executor killed by driver", "Executor decommission", "Executor Process Lost due to decommission")
_HARMLESS = ("TaskKilled", "TaskCommitDenied", "Resubmitted")


class Application:
    """``data`` is all of it, for a note on disk; ``work``: the user's folder, for places in the code."""

    def __init__(self, work: str, data: Optional[Facts] = None) -> None:
        self._work = work
        self.troubles: List[Facts] = []  # that nobody was told yet
        self.data: Facts = data or {
            "app": None,
            "version": None,
            "master": None,
            "settings": {},
            "jobs": {"total": 0, "done": 0, "failed": 0},
            "open": {},  # job → stage → [tasks, stages before it], of stages that were not submitted yet
            "stages": {"begun": 0, "done": 0, "failed": 0},
            "again": [],  # stages that failed and may come again
            "running": {},  # stage.attempt → [tasks, done]
            "tasks": {"total": 0, "done": 0, "failed": 0},  # of stages that are over
            "executors": {},
            "seen": 0,
            "most": 0,
            "lost": 0,
            "given": {},  # host → GPUs of executors there, by address
            "counts": {},
            "failure": None,  # of the last stage or job that failed
            "ended": False,
        }
        self._steps: Dict[bytes, Callable[[Facts], None]] = {
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
        """One event; what is none, or of no interest, changes nothing."""
        if not line.startswith(_EVENT):
            return
        name = line[len(_EVENT) : len(_EVENT) + 40].partition(b'"')[0]
        step = self._steps.get(name)
        if step is None or (name == b"TaskEnd" and self._went_well(line[:_HEAD])):
            return
        try:
            step(parse_json(line.decode("utf-8", "replace")))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError):
            return  # a script may write such lines, too

    # -- the application -------------------------------------------------------------------------------------

    def _log_start(self, event: Facts) -> None:
        self.data["version"] = _text(event.get("Spark Version"), 60)

    def _application_start(self, event: Facts) -> None:
        self.data["app"] = _text(event.get("App ID"), 200)

    def _environment(self, event: Facts) -> None:
        settings = event["Spark Properties"]
        if isinstance(settings, list):  # pairs, as before Spark 3
            settings = dict(settings)
        self.data["master"] = _text(settings.get("spark.master"), 200)
        self.data["settings"] = {name: _text(settings[name], 200) for name in _SETTINGS if name in settings}

    def _application_end(self, event: Facts) -> None:
        self.data["ended"] = True

    # -- jobs and stages -------------------------------------------------------------------------------------

    def _job_start(self, event: Facts) -> None:
        job, jobs = str(int(event["Job ID"])), self.data["open"]
        self.data["jobs"]["total"] += 1
        if len(jobs) >= _MOST_OPEN:
            return
        # One that was submitted for an earlier job is used again, and is not to be waited for.
        room = _MOST_STAGES - sum(len(one) for one in jobs.values())
        ahead = [one for one in event["Stage Infos"][: max(0, room)] if not one.get("Submission Time")]
        jobs[job] = {str(int(one["Stage ID"])): [_count(one["Number of Tasks"]), _parents(one)] for one in ahead}

    def _job_end(self, event: Facts) -> None:
        """Stages that were never submitted are those that Spark skipped: they count no more."""
        self.data["open"].pop(str(int(event["Job ID"])), None)
        result = event["Job Result"]
        if result.get("Result") == "JobSucceeded":
            self.data["jobs"]["done"] += 1
            return
        self.data["jobs"]["failed"] += 1
        text = self._why((result.get("Exception") or {}).get("Message"))
        if text != (self.data["failure"] or {}).get("reason"):  # else told of its stage
            self._fail("job", {"job": int(event["Job ID"]), "reason": text})

    def _stage_submitted(self, event: Facts) -> None:
        info = event["Stage Info"]
        stage, attempt, tasks = (
            str(int(info["Stage ID"])),
            int(info["Stage Attempt ID"]),
            _count(info["Number of Tasks"]),
        )
        for ahead in self.data["open"].values():
            # Whatever it needs is there: of what was before it and was not submitted, Spark has skipped all.
            before = [stage, *_parents(info)]
            while before:
                before += ahead.pop(before.pop(), [0, []])[1]
        if attempt == 0:
            self.data["stages"]["begun"] += 1
        if len(self.data["running"]) < _MOST_OPEN:
            self.data["running"]["%s.%d" % (stage, attempt)] = [tasks, 0]

    def _stage_completed(self, event: Facts) -> None:
        info = event["Stage Info"]
        stage, attempt = int(info["Stage ID"]), int(info["Stage Attempt ID"])
        tasks, done = self.data["running"].pop("%d.%d" % (stage, attempt), [0, 0])
        failure = info.get("Failure Reason")
        sums, stages, again = self.data["tasks"], self.data["stages"], self.data["again"]
        sums["total"] += done if failure else tasks
        sums["done"] += done if failure else tasks
        if not failure:
            if attempt == 0 or stage in again:  # else one that was done is done once more
                stages["done"] += 1
            if stage in again:
                again.remove(stage)
            return
        stages["failed"] += 1
        if stage not in again and len(again) < _MOST_OPEN:
            again.append(stage)
        name = str(info.get("Stage Name") or "").replace(self._work + "/", "")[:200]
        self._fail("stage", {"stage": stage, "name": name, "reason": self._why(failure)})

    def _fail(self, what: str, told: Facts) -> None:
        self.data["failure"] = told
        self._trouble(what, told)

    def _why(self, text: Any) -> str:
        from .reasons import in_one_line  # noqa: PLC0415 - regular expressions, for those that fail

        return in_one_line(text, self._work) if isinstance(text, str) else ""

    # -- tasks -----------------------------------------------------------------------------------------------

    def _went_well(self, head: bytes) -> bool:
        """``{"Event":"SparkListenerTaskEnd","Stage ID":0,"Stage Attempt ID":0,"Task Type":…``"""
        if _WELL not in head:
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
            return  # told of the executor
        told = {"stage": int(event["Stage ID"]), "executor": _text(info.get("Executor ID"), 100)}
        told["host"] = _text(info.get("Host"), 200)
        if self._is_told("task"):
            from .reasons import task_cause  # noqa: PLC0415 - as above

            told["reason"] = task_cause(reason, self._work)
        self._trouble("task", told)

    # -- executors -------------------------------------------------------------------------------------------

    def _executor_added(self, event: Facts) -> None:
        name, info = str(event["Executor ID"])[:100], event["Executor Info"]
        if name == "driver":  # of a local master: the driver itself
            return
        gpus = ((info.get("Resources") or {}).get("gpu") or {}).get("addresses") or []
        known: Facts = {"host": _text(info.get("Host"), 200), "cores": _count(info.get("Total Cores") or 0)}
        known["gpus"] = [str(one)[:40] for one in gpus[:16]]
        self.data["seen"] += 1
        if known["gpus"] and len(self.data["given"]) < _MOST_HOSTS:
            here = self.data["given"].setdefault(str(known["host"]), [])
            here += [one for one in known["gpus"] if one not in here and len(here) < _MOST_HOSTS]
        if len(self.data["executors"]) < _MOST_OPEN:
            self.data["executors"][name] = known
        self.data["most"] = max(self.data["most"], len(self.data["executors"]))

    def _executor_removed(self, event: Facts) -> None:
        name = str(event["Executor ID"])[:100]
        known = self.data["executors"].pop(name, None) or {}
        reason = str(event.get("Removed Reason") or "")
        if reason.startswith(_WANTED) or self.data["ended"]:
            return
        self.data["lost"] += 1
        told = {"executor": name, "host": known.get("host"), "reason": self._why(reason), "left": self._executors()}
        self._trouble("executor", told)

    # -- for whoever tells it --------------------------------------------------------------------------------

    def _is_told(self, what: str) -> bool:
        return bool(self.data["counts"].get(what, 0) < TOLD[what])

    def _trouble(self, what: str, told: Facts) -> None:
        tell = self._is_told(what)
        self.data["counts"][what] = self.data["counts"].get(what, 0) + 1
        if tell:
            self.troubles.append(dict(told, what=what, app=self.data["app"]))

    def _executors(self) -> int:
        return len(self.data["executors"])

    def progress(self) -> Facts:
        """As an event tells it, without the executors one by one."""
        data = self.data
        ahead: Dict[str, Any] = {}
        for stages in data["open"].values():
            ahead.update(stages)
        running, waiting = list(data["running"].values()), sum(count for count, _ in ahead.values())
        tasks, stages = data["tasks"], data["stages"]
        return {
            "app": data["app"],
            "jobs": dict(data["jobs"]),
            "stages": {"done": stages["done"], "total": stages["begun"] + len(ahead), "failed": stages["failed"]},
            "tasks": {
                "done": tasks["done"] + sum(done for _, done in running),
                "total": tasks["total"] + sum(count for count, _ in running) + waiting,
                "failed": tasks["failed"],
            },
            "executors": {"now": self._executors(), "most": data["most"], "lost": data["lost"]},
            "ended": data["ended"],
        }

    def members(self, most: int = 32) -> List[Facts]:
        """The first of the executors that are there, and what each of them has."""
        every = list(self.data["executors"].items())[:most]
        return [dict(told, executor=name) for name, told in every]


_SETTINGS = (
    "spark.ui.port",
    "spark.ui.enabled",
    "spark.ssl.enabled",
    "spark.ssl.ui.enabled",
    "spark.yarn.historyServer.address",
    "spark.executor.resource.gpu.amount",
)


def _parents(info: Facts) -> List[str]:
    return [str(int(one)) for one in (info.get("Parent IDs") or ())[:_MOST_PARENTS]]


def _count(value: Any) -> int:
    """What a script wrote in Spark's place is no reason to count backwards."""
    return min(max(0, int(value)), 1 << 40)


def _text(value: Any, most: int) -> Optional[str]:
    return value[:most] if isinstance(value, str) else None
