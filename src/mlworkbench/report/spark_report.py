"""Format information about the Spark application of a run."""

from __future__ import annotations

import shlex
from typing import Any

from ..model import JsonDict, Run
from ..sanitize import plain
from .units import pluralize

_MAX_LENGTH = 500
_LOOPBACK = "http://127.0.0.1:"


def summary(spark: JsonDict) -> str:
    """Return a line such as ``app-20261116003435-0000, 14 of 20 stages, 3 executors (1 lost), 2 tasks failed``."""
    parts = [plain(str(spark.get("app") or "an application"), 200)]
    stages, tasks = _counts(spark, "stages"), _counts(spark, "tasks")
    if stages.get("total"):
        parts.append(f"{stages.get('done', 0)} of {pluralize(stages['total'], 'stage')}")
    parts += [text for text in (executors(spark),) if text]
    if tasks.get("failed"):
        parts.append(f"{pluralize(tasks['failed'], 'task')} failed")
    if (spark.get("applications") or 0) > 1:
        parts.append(f"application {spark['applications']} of this run")
    return ", ".join(parts)


def executors(spark: JsonDict) -> str | None:
    """Return ``3 executors (1 lost)``; None for a local master, which has no executors."""
    counts = _counts(spark, "executors")
    if not counts.get("most"):
        return None
    count = counts.get("now", 0) or (counts["most"] if spark.get("ended") else 0)
    return pluralize(count, "executor") + (f" ({counts['lost']} lost)" if counts.get("lost") else "")


def progress(spark: JsonDict) -> str | None:
    """Return the progress, such as ``2 of 3 jobs, 14 of 20 stages, 311 of 400 tasks (2 failed)``."""
    parts = []
    for name, thing in (("jobs", "job"), ("stages", "stage"), ("tasks", "task")):
        counts = _counts(spark, name)
        if counts.get("total"):
            failed = f" ({counts['failed']} failed)" if counts.get("failed") else ""
            parts.append(f"{counts.get('done', 0)} of {pluralize(counts['total'], thing)}{failed}")
    return ", ".join(parts) or None


def kind(spark: JsonDict) -> str:
    """Return the version and master, such as ``Spark 4.3.0, master spark://host:7077``."""
    parts = [f"Spark {plain(str(spark['version']), 60)}" if spark.get("version") else ""]
    parts.append(f"master {plain(str(spark['master']), 200)}" if spark.get("master") else "")
    return ", ".join(part for part in parts if part)


def members(spark: JsonDict) -> list[str]:
    """Return one line per executor, such as ``1 on 10.0.0.5, 4 cores, GPU 0``."""
    return [_member(member) for member in spark.get("members") or [] if isinstance(member, dict)]


def _member(member: JsonDict) -> str:
    parts = [f"{plain(str(member.get('executor')), 100)} on {plain(str(member.get('host')), 200)}"]
    cores, gpus = member.get("cores"), member.get("gpus")
    if isinstance(cores, int):
        parts.append(pluralize(cores, "core"))
    if isinstance(gpus, list) and gpus:
        parts.append(f"GPU {plain(', '.join(map(str, gpus)), 200)}")
    return ", ".join(parts)


def describe_problems(spark: JsonDict) -> list[str]:
    """Return one line for the first problem of each kind."""
    return [describe_problem(data) for data in spark.get("troubles") or [] if isinstance(data, dict)]


def describe_problem(data: JsonDict) -> str:
    """Return a line such as ``executor 0 on 10.0.0.5 was lost: Command exited with code 137``."""
    host = f" on {data['host']}" if data.get("host") else ""
    name = f" ({data['name']})" if data.get("name") else ""
    text = {
        "executor": f"executor {data.get('executor')}{host} was lost",
        "task": f"a task of stage {data.get('stage')}{host} failed",
        "stage": f"stage {data.get('stage')}{name} failed",
        "job": f"job {data.get('job')} failed",
    }.get(str(data.get("what")), "unknown failure")
    return plain(text + (f": {data['reason']}" if data.get("reason") else ""), _MAX_LENGTH)


def spark_fields(spark: JsonDict | None, final: bool) -> dict[str, str]:
    """Return fields for tables and the run page. The Spark UI is available only during the run."""
    if not spark or not spark.get("app"):
        return {}
    fields = {"spark": summary(spark), "spark_ui": None if final else link(spark, "ui")}
    fields["spark_history"] = link(spark, "history")
    return {name: text for name, text in fields.items() if text}


def link(spark: JsonDict, name: str) -> str | None:
    url = spark.get(name)
    return plain(url, _MAX_LENGTH) if isinstance(url, str) and url.startswith(("http://", "https://")) else None


def tunnel(run: Run) -> str | None:
    """Return the SSH command that forwards a Spark UI listening only on its own machine."""
    address, compute = link(run.spark or {}, "ui"), run.spec.compute
    if address is None or compute.address is None or not address.startswith(_LOOPBACK):
        return None
    port = address[len(_LOOPBACK) :].strip("/")
    if not port.isdigit():
        return None
    command = ["ssh", "-L", f"{port}:127.0.0.1:{port}"]
    command += [
        *(["-p", str(compute.port)] if compute.port else []),
        *(["-J", compute.jump_host] if compute.jump_host else []),
    ]
    command.append(f"{compute.username}@{compute.address}" if compute.username else compute.address)
    return plain(shlex.join(command), _MAX_LENGTH)


def _counts(spark: JsonDict, name: str) -> dict[str, Any]:
    counts = spark.get(name)
    return counts if isinstance(counts, dict) else {}
