"""Text and table rows about jobs and GPUs of a Slurm cluster."""

from __future__ import annotations

from ..model import JsonDict, Run
from ..scheduler_state import describe_job
from ..slurm_options import format_time_limit
from ..targets.slurm_facts import GpuCount, Partition, SlurmFacts

GPU_COLUMNS = ("partition", "state", "model", "total", "free", "used", "unusable", "per_node", "time_limit")


def requested_gpus(scheduler: JsonDict | None) -> str | None:
    """Return the GPUs that a run requests from a scheduler, as ``--gpus`` has them."""
    if not scheduler or not scheduler.get("gpus"):
        return None
    model = scheduler.get("gpu_model")
    return f"{model}:{scheduler['gpus']}" if model else str(scheduler["gpus"])


def describe_request(scheduler: JsonDict | None) -> str | None:
    """Return what a run requests, such as ``partition gpu, time limit 2:00:00``."""
    if not scheduler:
        return None
    parts = [f"{name} {scheduler[name]}" for name in ("partition", "account", "qos", "constraint") if scheduler[name]]
    parts += [f"time limit {format_time_limit(scheduler['time'])}"] if scheduler.get("time") else []
    return ", ".join([*parts, *map(str, scheduler.get("options") or ())]) or "the defaults of the cluster"


def job_fields(run: Run) -> dict[str, str]:
    """Return the line about the job for the record of a run."""
    job = describe_job(run)
    return {"scheduler_job": job} if job else {}


def gpu_rows(facts: SlurmFacts) -> list[JsonDict]:
    """Return a row per partition and GPU model."""
    return [_gpu_row(partition, gpu) for partition in facts.partitions for gpu in partition.gpus]


def _gpu_row(partition: Partition, gpu: GpuCount) -> JsonDict:
    return {
        "partition": partition.name,
        "default": partition.default is True,
        "state": partition.state,
        "model": gpu.model,
        "total": gpu.total,
        "free": gpu.free if partition.state == "up" else 0,
        "used": gpu.used,
        "unusable": gpu.unusable,
        "per_node": gpu.per_node,
        "time_limit": format_time_limit(partition.max_time) if partition.max_time else None,
    }


def describe_gpus(facts: SlurmFacts) -> str:
    """Return one line, such as ``gpu: 2 of 4 a100 free``."""
    if facts.problem:
        return facts.reason or facts.problem
    rows = gpu_rows(facts)
    parts = [f"{row['partition']}: {row['free']} of {row['total']} {row['model'] or 'GPUs'} free" for row in rows]
    return "; ".join(parts) or "no partition has GPUs"
