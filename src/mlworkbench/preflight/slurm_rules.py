"""Check before a run whether a Slurm cluster can ever start it."""

from __future__ import annotations

from ..model import Compute, JsonDict
from ..slurm_options import format_time_limit
from ..targets.slurm_facts import Partition, SlurmFacts
from .finding import ERROR, WARNING, Finding

_RULE, _MAX_NAMES = "scheduler", 12


def scheduler_findings(
    scheduler: JsonDict, compute: Compute, facts: SlurmFacts, timeout: float | None = None
) -> list[Finding]:
    """Return the findings. ``scheduler``: what the run requests; ``timeout``: the run's own time limit."""
    if facts.problem:
        message = f"{compute.name} cannot submit jobs: {facts.reason}"
        return [_finding(compute, ERROR, message, f"mlw computetarget check {compute.name}")]
    findings = []
    if timeout is not None and scheduler["time"] is not None and scheduler["time"] < timeout:
        message = f"time: {compute.time} ends the job before the run's time limit of {format_time_limit(timeout)}"
        findings.append(_finding(compute, WARNING, message, "increase time, or decrease --timeout"))
    requested = scheduler["partition"]
    partitions = facts.select(requested)
    known = {row.name for row in partitions}
    missing = [name for name in (requested or "").split(",") if name and name not in known]
    if missing or (not partitions and facts.partitions):
        what = f"partition {missing[0]} does not exist" if missing else "the cluster has no default partition"
        hint = f"set partition to one of: {', '.join(row.name for row in facts.partitions[:_MAX_NAMES])}"
        findings.append(_finding(compute, ERROR, what, hint))
    elif partitions:  # Slurm chooses the partition in which the job can start first
        results = [_check_partition(scheduler, compute, row) for row in partitions]
        findings += min(results, key=lambda result: sum(finding.severity == ERROR for finding in result))
    return findings


def _check_partition(scheduler: JsonDict, compute: Compute, partition: Partition) -> list[Finding]:
    findings = []
    gpus, model = scheduler["gpus"], scheduler["gpu_model"]
    available = partition.gpus_per_node(model)
    if gpus and gpus > available:
        what = f"{gpus} {model} GPUs" if model else f"{gpus} GPU{'s' if gpus > 1 else ''}"
        most = f"no node of partition {partition.name} has {what} (most: {available})"
        findings.append(_finding(compute, ERROR, most, f"request fewer GPUs; see: mlw gpus -t {compute.name}"))
    limit = partition.max_time
    if limit is not None and scheduler["time"] is not None and scheduler["time"] > limit:
        message = (
            f"the job needs {format_time_limit(scheduler['time'])}, more than the limit of partition {partition.name},"
            f" {format_time_limit(limit)}"
        )
        findings.append(_finding(compute, ERROR, message, "decrease time or --timeout, or choose another partition"))
    if partition.state not in (None, "up"):
        message = f"partition {partition.name} is {partition.state}: it starts no jobs now"
        findings.append(_finding(compute, WARNING, message, "the run waits until the partition is up"))
    return findings


def _finding(compute: Compute, severity: str, message: str, hint: str) -> Finding:
    return Finding(_RULE, severity, f"aml_config/{compute.name}.compute", None, message, hint)
