"""The record of a run for users and programs: the keys of Azure ML Workbench, then those of mlw."""

from __future__ import annotations

import time
from typing import Any

from ..errors import EXIT_TIMEOUT, NotFetched
from ..history.nested_runs import child_id
from ..history.parameters import run_parameters
from ..history.run_state import MAX_WRITER_LENGTH, MAX_WRITERS, format_ending
from ..model import Run, RunSpec, Status
from ..remote.shared import run_endings
from ..remote.shared.metric_limits import MAX_FILES
from ..sanitize import plain
from . import units
from .attempt_history import attempt_records
from .failure_report import failure_of, gpu_summary
from .rank_list import rank_records
from .slurm_report import job_fields, requested_gpus
from .spark_report import spark_fields as spark_words

LIST_COLUMNS = (
    *("run_id", "status", "start_time_utc", "script_name", "arguments", "children", "target", "duration", "gpu"),
    *("name", "tags", "archived"),
)
ACTIVE_COLUMNS = ("run_id", "status", "age", "script_name", "arguments", "children", "target", "name", "tags")


_LEFT_OUT = {
    "events": f"{{count:,}} events: at most {MAX_WRITERS} writers, with names of up to {MAX_WRITER_LENGTH} characters",
    "files": f"metric files: the first {MAX_FILES:,} are read",
    "metrics": "{count:,} metric values: too many, or their names or texts are too long",
    "records": "{count:,} parameters, tags, files, or nested runs: too many or too long",
    "listed": "{count:,} metrics, parameters, and tags are not indexed and cannot be used for search or sorting",
    "all": "all metrics, parameters, tags, and files: too large for the run history",
}
# Keys that tables omit, because they are redundant or constant.
_HIDDEN_KEYS = (
    *("failure", "metrics", "environment", "heartbeat_enabled", "attachments", "sweep", "attempts", "ranks"),
    *("scheduler", "job"),  # shown in one line: see slurm_report
)


def record(run: Run) -> dict[str, Any]:
    """Return the complete record of a run. Metrics are at the top level, as in Azure ML Workbench."""
    spec = run.spec
    fields = {
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
        "attempts": attempt_records(run),
        "ranks": rank_records(run),
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
        **_files(run),
        "python": _python(spec),
        "properties": _properties(spec),
        "submit_key": spec.key,
        "environment": spec.lock,
        "gpus": spec.gpus or requested_gpus(spec.scheduler),
        "gpu": run.gpu,
        "scheduler": spec.scheduler,
        "job": run.job,
        "spark": run.spark,
        **job_fields(run),
        "user_id": spec.user,
        "description": run.noted.note,
        **_relations(run),
        "params": {name: True if value is None else value for name, value in run_parameters(run).items()},
        "heartbeat_enabled": True,
    }
    metrics = dict(run.metrics)
    # A metric with the same name as another key appears only under "metrics".
    return {**metrics, **fields, "metrics": metrics}


def _files(run: Run) -> dict[str, Any]:
    return {
        "outputs": run.outputs,
        "output_bytes": run.output_bytes,
        "checkpoint_bytes": run.checkpoint_bytes,
        "log_bytes": run.log_size,
        "leftovers": list(run.leftovers),
        "left_out": left_out(run),
        "unkept": list(map(plain, run.unkept)),
    }


def _relations(run: Run) -> dict[str, Any]:
    return {
        "parent_run_id": run.spec.parent,
        "resumed_run_id": run.spec.resumed,
        "children": children_ids(run),
        "sweep": run.spec.sweep,
        **({"submitted_from": run.spec.origin} if run.spec.origin else {}),
    }


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
        "ending": format_ending(run),
        "cause": run.cause,
        "failure": run.failure.to_json() if run.failure else None,
        "exit_code": run.exit,
        "signal": run.signal,
    }


def _python(spec: RunSpec) -> str | None:
    """Return the path of the Python interpreter. The key "environment" describes what mlw installed for it."""
    lock = spec.lock or {}
    return spec.commands[-1].argv[0] if lock.get("kind") == "managed" else lock.get("python")


def children_ids(run: Run) -> list[str] | None:
    """Return the IDs of sweep children or direct nested runs; None if the run itself is nested."""
    if run.spec.inside:
        return None
    if run.spec.sweep is not None:
        return [str(child) for child in run.spec.sweep.get("children", ())]
    parents = {name: record.get("parent") for name, record in run.children.items()}
    direct = (name for name, parent in parents.items() if parent not in parents or parent == name)
    return list(dict.fromkeys(child_id(run.id, name) for name in direct))


def to_display(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the record for a table: times truncated to whole seconds, and no empty values."""
    shown = {key: value for key, value in facts.items() if value is not None and value not in ([], {})}
    for key in _HIDDEN_KEYS:
        shown.pop(key, None)
    if shown.get("archived") is False:
        del shown["archived"]
    for key in ("created_utc", "start_time_utc", "end_time_utc"):
        if key in shown:
            shown[key] = shown[key][:19].replace("T", " ")
    if "duration" in shown:
        shown["duration"] = shown["duration"].partition(".")[0]
    spark = shown.pop("spark", None)
    return {**shown, **gpu_fields(shown.pop("gpu", None)), **spark_words(spark, facts.get("ending") is not None)}


def left_out(run: Run) -> list[str]:
    """Return lines about recorded data that could not be read, verified, or kept."""
    limits = [_LEFT_OUT[kind].format(count=count) for kind, count in run.over_limit.items() if kind in _LEFT_OUT]
    return [*limits, *map(plain, run.left_out)]


REMEDY = "Remedy"  # label of the remedy line


def cause_lines(run: Run) -> list[tuple[str, str]]:
    """Return the cause of the ending and its remedy. A failed build may have several cause lines."""
    if not run.cause:
        return []
    failure = failure_of(run)
    message, hint = (failure.message, failure.hint) if failure else (run.cause, None)
    first, *more = [plain(line.strip()) for line in message.splitlines() if line.strip()] or [""]
    lines = [("Cause", first), *(("", line) for line in more)]
    return [*lines, (REMEDY, plain(hint))] if hint else lines


def gpu_fields(gpu: dict[str, Any] | None) -> dict[str, str]:
    """Return the GPU verdict, its cause, and the remedy, for display."""
    if not gpu:
        return {}
    fields = {"gpu": " – ".join(filter(None, (str(gpu.get("used")), gpu_summary(gpu))))} if gpu.get("line") else {}
    raw_idle = gpu.get("idle")
    idle: dict[str, Any] = raw_idle if isinstance(raw_idle, dict) else {}
    diagnosis = gpu.get("diagnosis") or idle.get("diagnosis") or {}
    diagnosis = diagnosis if isinstance(diagnosis, dict) else {}  # untrusted: sent by a target
    warning = idle.get("warning") if not fields else None
    more = {"gpu_warning": warning, "gpu_cause": diagnosis.get("cause"), "gpu_remedy": diagnosis.get("remedy")}
    return {**fields, **{name: str(text) for name, text in more.items() if text}}


def gpu_cell(gpu: dict[str, Any] | None) -> str | None:
    """Return the GPU use for a table cell, such as ``yes 93 %``."""
    if not gpu or not gpu.get("used"):
        return None
    gpus = [item for item in gpu.get("gpus") or [] if isinstance(item, dict)]
    used = [item for item in gpus if item.get("pids")] or (gpus if gpu["used"] == "yes" else [])
    shares = [item.get("mean_utilisation") for item in used]
    numbers = [share for share in shares if isinstance(share, (int, float))]
    return f"{gpu['used']} {sum(numbers) / len(numbers):.0f} %" if numbers else str(gpu["used"])


def summary(run: Run) -> str:
    """Return one line about the status or ending, such as ``Failed (exit 3) after 2.1 s``."""
    text = outcome(run)
    if run.duration is not None:
        text += f" after {units.duration(run.duration)}"
    return text


def outcome(run: Run) -> str:
    """Return the status and ending, such as ``Failed (exit 3)``."""
    more = ending(run)
    return f"{run.status.value} ({more})" if more else run.status.value


def ending(run: Run) -> str | None:
    """Return details beyond the status, such as ``exit 3`` or what the run is waiting for."""
    return (
        _exit_text(run) or (run.detail if run.spec.inside else None)
        if run.ending == run_endings.FAILED
        else _ENDING_LABELS.get(run.ending or "", run.ending) or run.detail
    )


# Labels for endings; None if the status already expresses the ending.
_ENDING_LABELS = {run_endings.SUCCEEDED: None, run_endings.CANCELLED: None, run_endings.CANCELLED_FORCED: "forced"}


def _exit_text(run: Run) -> str | None:
    if run.signal is not None:
        return f"signal {run.signal}"
    return None if run.exit is None else f"exit {run.exit}"  # a nested run has no exit code


def exit_code(run: Run) -> int:
    """Return the exit code of ``submit``: the exit code of the script, if it has one."""
    if run.status is Status.COMPLETED:
        return 0
    if run.ending == run_endings.TIMEOUT:
        return EXIT_TIMEOUT
    if run.status is Status.CANCELED:
        return 143
    if run.signal is not None:
        return 128 + run.signal
    failure = failure_of(run)
    if failure and failure.code == NotFetched.code:
        return NotFetched.exit_code
    return run.exit or 75


def _time(timestamp: float | None) -> str | None:
    if timestamp is None:
        return None
    whole, micro = divmod(round(timestamp * 1_000_000), 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{micro:06}+00:00"


def _duration(seconds: float | None) -> str | None:
    """Return a duration as ``H:MM:SS.ffffff``, the Azure ML Workbench format."""
    if seconds is None:
        return None
    whole, micro = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}.{micro:06}"
