"""Findings about the cluster of a target, for attach and check: its Spark master, or its scheduler."""

from __future__ import annotations

from ..hosts.host import Host
from ..model import Compute
from .machine_check import Finding
from .spark_check import spark_findings
from .types import SLURM_STARTER, Feature, type_of


def scheduler_has_gpus(compute: Compute, host: Host) -> bool:
    """Return whether the partition of a target has GPUs. False if the target has no scheduler."""
    if not type_of(compute).has(Feature.SCHEDULER_GPUS):
        return False
    from .slurm_facts import fetch_slurm_facts  # noqa: PLC0415 - other types need not wait for it

    return any(row.gpus_per_node() > 0 for row in fetch_slurm_facts(host).select(compute.partition))


def cluster_findings(compute: Compute, host: Host) -> list[Finding]:
    """Return the findings; none for a target that is a single machine."""
    row = type_of(compute)
    findings = spark_findings(compute, host.ask) if row.has(Feature.SPARK) else []
    if row.starter == SLURM_STARTER:
        from .slurm_check import slurm_findings  # noqa: PLC0415 - other types need not wait for it

        findings += slurm_findings(compute, host)
    return findings
