"""A run's Spark application as people read of it."""

from __future__ import annotations

import shlex
from typing import Any

from ..model import JsonDict, Run
from .plain import plain
from .units import counted

_SHOWN = 500
_LOOPBACK = "http://127.0.0.1:"


def summary(spark: JsonDict) -> str:
    """``app-20261116003435-0000, 14 of 20 stages, 3 executors (1 lost), 2 tasks failed``."""
    words = [plain(str(spark.get("app") or "an application"), 200)]
    stages, tasks = _counts(spark, "stages"), _counts(spark, "tasks")
    if stages.get("total"):
        words.append(f"{stages.get('done', 0)} of {counted(stages['total'], 'stage')}")
    words += [one for one in (executors(spark),) if one]
    if tasks.get("failed"):
        words.append(f"{counted(tasks['failed'], 'task')} failed")
    if (spark.get("applications") or 0) > 1:
        words.append(f"application {spark['applications']} of this run")
    return ", ".join(words)


def executors(spark: JsonDict) -> str | None:
    """``3 executors (1 lost)``; None of a local master, which has none."""
    found = _counts(spark, "executors")
    if not found.get("most"):
        return None
    count = found.get("now", 0) or (found["most"] if spark.get("ended") else 0)
    return counted(count, "executor") + (f" ({found['lost']} lost)" if found.get("lost") else "")


def progress(spark: JsonDict) -> str | None:
    """``2 of 3 jobs, 14 of 20 stages, 311 of 400 tasks (2 failed)``."""
    words = []
    for name, thing in (("jobs", "job"), ("stages", "stage"), ("tasks", "task")):
        found = _counts(spark, name)
        if found.get("total"):
            failed = f" ({found['failed']} failed)" if found.get("failed") else ""
            words.append(f"{found.get('done', 0)} of {counted(found['total'], thing)}{failed}")
    return ", ".join(words) or None


def kind(spark: JsonDict) -> str:
    """``Spark 4.3.0, master spark://host:7077``."""
    words = [f"Spark {plain(str(spark['version']), 60)}" if spark.get("version") else ""]
    words.append(f"master {plain(str(spark['master']), 200)}" if spark.get("master") else "")
    return ", ".join(word for word in words if word)


def members(spark: JsonDict) -> list[str]:
    """``1 on 10.0.0.5, 4 cores, GPU 0``, one each."""
    return [_member(one) for one in spark.get("members") or [] if isinstance(one, dict)]


def _member(one: JsonDict) -> str:
    words = [f"{plain(str(one.get('executor')), 100)} on {plain(str(one.get('host')), 200)}"]
    cores, gpus = one.get("cores"), one.get("gpus")
    if isinstance(cores, int):
        words.append(counted(cores, "core"))
    if isinstance(gpus, list) and gpus:
        words.append(f"GPU {plain(', '.join(map(str, gpus)), 200)}")
    return ", ".join(words)


def troubles(spark: JsonDict) -> list[str]:
    """What went wrong, a line each: the first of every kind."""
    return [trouble(one) for one in spark.get("troubles") or [] if isinstance(one, dict)]


def trouble(one: JsonDict) -> str:
    """``executor 0 on 10.0.0.5 was lost: Command exited with code 137``."""
    host = f" on {one['host']}" if one.get("host") else ""
    name = f" ({one['name']})" if one.get("name") else ""
    words = {
        "executor": f"executor {one.get('executor')}{host} was lost",
        "task": f"a task of stage {one.get('stage')}{host} failed",
        "stage": f"stage {one.get('stage')}{name} failed",
        "job": f"job {one.get('job')} failed",
    }.get(str(one.get("what")), "unknown failure")
    return plain(words + (f": {one['reason']}" if one.get("reason") else ""), _SHOWN)


def words(spark: JsonDict | None, final: bool) -> dict[str, str]:
    """For a table, and for the page of a run. Nobody serves Spark's own page when the run is over."""
    if not spark or not spark.get("app"):
        return {}
    found = {"spark": summary(spark), "spark_ui": None if final else link(spark, "ui")}
    found["spark_history"] = link(spark, "history")
    return {name: text for name, text in found.items() if text}


def link(spark: JsonDict, name: str) -> str | None:
    told = spark.get(name)
    return plain(told, _SHOWN) if isinstance(told, str) and told.startswith(("http://", "https://")) else None


def tunnel(run: Run) -> str | None:
    """What brings the page here, where it listens on another machine for that machine alone."""
    address, compute = link(run.spark or {}, "ui"), run.spec.compute
    if address is None or compute.address is None or not address.startswith(_LOOPBACK):
        return None
    port = address[len(_LOOPBACK) :].strip("/")
    if not port.isdigit():
        return None
    words = ["ssh", "-L", f"{port}:127.0.0.1:{port}"]
    words += [
        *(["-p", str(compute.port)] if compute.port else []),
        *(["-J", compute.jump_host] if compute.jump_host else []),
    ]
    words.append(f"{compute.username}@{compute.address}" if compute.username else compute.address)
    return plain(shlex.join(words), _SHOWN)


def _counts(spark: JsonDict, name: str) -> dict[str, Any]:
    told = spark.get(name)
    return told if isinstance(told, dict) else {}
