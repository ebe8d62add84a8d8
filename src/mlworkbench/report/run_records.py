"""A run as the record that people and programs read: the original's keys, then ours."""

from __future__ import annotations

import time
from typing import Any

from ..errors import EXIT_TIMEOUT, NotFetched
from ..history.family import child_id
from ..history.fold import LONGEST_WRITER, MOST_WRITERS, ending_words
from ..history.parameters import of_run
from ..model import Run, RunSpec, Status
from ..remote.shared import endings
from ..remote.shared.metric_files import MOST_FILES
from . import units
from .failures import failure_of, gpu_summary
from .plain import plain
from .spark import words as spark_words
from .values import finite

LIST = (
    *("run_id", "status", "start_time_utc", "script_name", "arguments", "children", "target", "duration", "gpu"),
    *("name", "tags", "archived"),
)
NOW = ("run_id", "status", "age", "script_name", "arguments", "children", "target", "name", "tags")


_LEFT_OUT = {
    "events": f"{{count:,}} events: at most {MOST_WRITERS} writers, with names of up to {LONGEST_WRITER} characters",
    "files": f"metric files: the first {MOST_FILES:,} are read",
    "metrics": "{count:,} metric values: too many, or their names or texts are too long",
    "records": "{count:,} parameters, tags, files, or nested runs: too many or too long",
    "listed": "{count:,} metrics, parameters, and tags are not indexed and cannot be used for search or sorting",
    "all": "all metrics, parameters, tags, and files: too large for the run history",
}
# Said by other keys, or always the same.
_UNSAID = ("failure", "metrics", "environment", "heartbeat_enabled", "attachments", "sweep")


def record(run: Run) -> dict[str, Any]:
    """All that is known of a run; metrics stand beside the other keys, as in the original."""
    spec = run.spec
    ours = {
        "run_id": run.id,
        "run_number": spec.number,
        "name": run.name,
        "status": run.status.value,
        "detail": run.detail,
        **_ending(run),
        "contact": run.contact,
        "script_name": spec.entry.name,
        "arguments": list(spec.entry.arguments),
        "target": spec.compute.name,
        "run_configuration": spec.runconfig,
        "created_utc": _time(spec.created),
        "start_time_utc": _time(run.started),
        "end_time_utc": _time(run.ended),
        "duration": _duration(run.duration),
        "age": units.age(max(0.0, time.time() - spec.created)),
        "project": spec.project_name,
        "experiment_id": spec.project_id,
        "tags": list(run.tags),
        "hidden": not spec.tracked,
        "archived": run.noted.archived,
        "outputs": run.outputs,
        "output_bytes": run.output_bytes,
        "log_bytes": run.log_size,
        "leftovers": list(run.leftovers),
        "left_out": left_out(run),
        "python": _python(spec),
        "properties": _properties(spec),
        "submit_key": spec.key,
        "environment": spec.lock,
        "gpus": spec.gpus,
        "gpu": run.gpu,
        "spark": run.spark,
        "user_id": spec.user,
        "description": run.noted.note,
        **({"submitted_from": spec.origin} if spec.origin else {}),
        **_family(run),
        "params": {name: True if value is None else finite(value) for name, value in of_run(run).items()},
        "heartbeat_enabled": True,
    }
    metrics = {name: finite(value) for name, value in run.metrics.items()}
    # Beside the other keys as in the original; a name that is taken is found under "metrics".
    return {**metrics, **ours, "metrics": metrics}


def _family(run: Run) -> dict[str, Any]:
    return {"parent_run_id": run.spec.parent, "children": children_ids(run), "sweep": run.spec.sweep}


def _properties(spec: RunSpec) -> dict[str, Any]:
    git = spec.git
    return {
        "SnapshotId": spec.snapshot,
        "CommitId": git.commit if git else None,
        "Branch": git.branch if git else None,
        "Dirty": git.dirty if git else None,
    }


def _ending(run: Run) -> dict[str, Any]:
    return {
        "ending": ending_words(run),
        "cause": run.cause,
        "failure": run.failure.to_json() if run.failure else None,
        "exit_code": run.exit,
        "signal": run.signal,
    }


def _python(spec: RunSpec) -> str | None:
    """Its path. The lock of an environment that we made tells more of it, under "environment"."""
    lock = spec.lock or {}
    return spec.commands[-1].argv[0] if lock.get("kind") == "managed" else lock.get("python")


def children_ids(run: Run) -> list[str] | None:
    """Of a sweep, or those that its script made directly; None where another run's record would have to tell."""
    if run.spec.inside:
        return None
    if run.spec.sweep is not None:
        return [str(one) for one in run.spec.sweep.get("children", ())]
    inner = {name: told.get("parent") for name, told in run.children.items()}
    direct = (name for name, above in inner.items() if above not in inner or above == name)
    return list(dict.fromkeys(child_id(run.id, name) for name in direct))


def for_people(facts: dict[str, Any]) -> dict[str, Any]:
    """The record as a table shows it: times to the second, and nothing about what is not there."""
    shown = {key: value for key, value in facts.items() if value is not None and value not in ([], {})}
    for key in _UNSAID:
        shown.pop(key, None)
    if shown.get("archived") is False:
        del shown["archived"]
    for key in ("created_utc", "start_time_utc", "end_time_utc"):
        if key in shown:
            shown[key] = shown[key][:19].replace("T", " ")
    if "duration" in shown:
        shown["duration"] = shown["duration"].partition(".")[0]
    spark = shown.pop("spark", None)
    return {**shown, **gpu_words(shown.pop("gpu", None)), **spark_words(spark, facts.get("ending") is not None)}


def left_out(run: Run) -> list[str]:
    """What the run recorded and is not read, checked or kept, in lines."""
    over = [_LEFT_OUT[kind].format(count=count) for kind, count in run.over_limit.items() if kind in _LEFT_OUT]
    return [*over, *map(plain, run.left_out)]


REMEDY = "Remedy"  # the label of the line that says how to fix it


def cause_lines(run: Run) -> list[tuple[str, str]]:
    """Why it ended as it did: a sentence, of a failed build a few lines, and what to do about it."""
    if not run.cause:
        return []
    failure = failure_of(run)
    message, hint = (failure.message, failure.hint) if failure else (run.cause, None)
    first, *more = [plain(line.strip()) for line in message.splitlines() if line.strip()] or [""]
    found = [("Cause", first), *(("", line) for line in more)]
    return [*found, (REMEDY, plain(hint))] if hint else found


def gpu_words(gpu: dict[str, Any] | None) -> dict[str, str]:
    """What is known of a run's GPUs, in lines for people: the verdict, its cause and the remedy."""
    if not gpu:
        return {}
    found = {"gpu": " – ".join(filter(None, (str(gpu.get("used")), gpu_summary(gpu))))} if gpu.get("line") else {}
    told_idle = gpu.get("idle")
    idle: dict[str, Any] = told_idle if isinstance(told_idle, dict) else {}
    told = gpu.get("diagnosis") or idle.get("diagnosis") or {}
    told = told if isinstance(told, dict) else {}  # it comes from a target
    warning = idle.get("warning") if not found else None
    more = {"gpu_warning": warning, "gpu_cause": told.get("cause"), "gpu_remedy": told.get("remedy")}
    return {**found, **{name: str(text) for name, text in more.items() if text}}


def gpu_word(gpu: dict[str, Any] | None) -> str | None:
    """For a column of a list: ``yes 93 %``."""
    if not gpu or not gpu.get("used"):
        return None
    every = [one for one in gpu.get("gpus") or [] if isinstance(one, dict)]
    opened = [one for one in every if one.get("pids")] or (every if gpu["used"] == "yes" else [])
    shares = [one.get("mean_utilisation") for one in opened]
    known = [share for share in shares if isinstance(share, (int, float))]
    return f"{gpu['used']} {sum(known) / len(known):.0f} %" if known else str(gpu["used"])


def summary(run: Run) -> str:
    """One line on how the run stands or ended: ``Failed (exit 3) after 2.1 s``."""
    words = outcome(run)
    if run.duration is not None:
        words += f" after {units.duration(run.duration)}"
    return words


def outcome(run: Run) -> str:
    """Status and ending in few words: ``Failed (exit 3)``."""
    more = ending(run)
    return f"{run.status.value} ({more})" if more else run.status.value


def ending(run: Run) -> str | None:
    """How it ended or what it waits for, beyond its status: ``exit 3``."""
    return _number(run) if run.ending == endings.FAILED else _PLAIN.get(run.ending or "", run.ending) or run.detail


# Endings that the status says already.
_PLAIN = {endings.SUCCEEDED: None, endings.CANCELLED: None, endings.CANCELLED_FORCED: "forced"}


def _number(run: Run) -> str | None:
    if run.signal is not None:
        return f"signal {run.signal}"
    return None if run.exit is None else f"exit {run.exit}"  # a run inside another has none


def exit_code(run: Run) -> int:
    """What ``submit`` returns: the script's own code where there is one."""
    if run.status is Status.COMPLETED:
        return 0
    if run.ending == endings.TIMEOUT:
        return EXIT_TIMEOUT
    if run.status is Status.CANCELED:
        return 143
    if run.signal is not None:
        return 128 + run.signal
    failure = failure_of(run)
    if failure and failure.code == NotFetched.code:
        return NotFetched.exit_code
    return run.exit or 75


def _time(moment: float | None) -> str | None:
    if moment is None:
        return None
    whole, micro = divmod(round(moment * 1_000_000), 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{micro:06}+00:00"


def _duration(seconds: float | None) -> str | None:
    """``H:MM:SS.ffffff``, as the original wrote it."""
    if seconds is None:
        return None
    whole, micro = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}.{micro:06}"
