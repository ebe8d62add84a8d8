"""Check that a machine can submit jobs to Slurm, for attach and check."""

from __future__ import annotations

from ..hosts.host import Host
from ..model import Compute
from ..slurm_options import format_time_limit
from .machine_check import ERROR, OK, WARNING, Finding
from .slurm_facts import NO_PROGRAM, Partition, SlurmFacts, fetch_slurm_facts

OLDEST = (20, 2)  # oldest supported version of Slurm
_MAX_SHOWN = 12
_PAGE = "no-slurm"
# File systems that only one machine mounts. Compute nodes cannot read a home folder there.
_LOCAL_FILE_SYSTEMS = frozenset("ext2 ext3 ext4 xfs btrfs zfs tmpfs overlay".split())


def slurm_findings(compute: Compute, host: Host) -> list[Finding]:
    """Return the findings about the cluster, and about what the ``.compute`` file requests of it."""
    facts = fetch_slurm_facts(host)
    where = compute.address or "this machine"
    if facts.problem:
        return [_problem(facts, where)]
    return [
        _version(facts),
        *_partitions(facts, compute),
        *_accounts(facts, compute),
        _gpus(facts),
        Finding("arrays", OK, f"up to {facts.max_array_size:,} tasks (MaxArraySize)")
        if facts.max_array_size
        else Finding("arrays", WARNING, "MaxArraySize is not known"),
        _home(facts, where),
    ]


def _problem(facts: SlurmFacts, where: str) -> Finding:
    if facts.problem == NO_PROGRAM:
        hint = "use the cluster's login node (--address), or load Slurm's programs in the login shell"
        return Finding("Slurm", ERROR, f"{where}: {facts.reason}", hint, _PAGE)
    hint = "ask the administrator whether slurmctld is running, then run the command again"
    return Finding("Slurm", ERROR, f"Slurm does not respond: {facts.reason}", hint, _PAGE)


def _version(facts: SlurmFacts) -> Finding:
    name = f", cluster {facts.cluster}" if facts.cluster else ""
    parts = tuple(int(part) for part in (facts.version or "").split(".")[:2] if part.isdigit())
    if not parts:
        return Finding("Slurm", WARNING, f"unknown version{name}")
    if parts < OLDEST:
        return Finding("Slurm", WARNING, f"{facts.version}{name}", "versions before 20.02 are not supported")
    return Finding("Slurm", OK, f"{facts.version}{name}")


def describe_partition(row: Partition) -> str:
    """Return limits and size, such as ``up, limit 1-00:00:00, 3 of 4 nodes, 8 CPUs, GPUs: 4 a100``."""
    parts = [
        row.state or "unknown state",
        f"limit {format_time_limit(row.max_time)}" if row.max_time else "no time limit",
        f"{row.usable or 0} of {row.nodes or 0} nodes usable",
        f"up to {row.cpus or 0} CPUs and {(row.memory or 0) / 1024:.0f} GiB per node",
    ]
    gpus = ", ".join(f"{gpu.total} {gpu.model or 'of unknown model'}" for gpu in row.gpus)
    return ", ".join([*parts, *([f"GPUs: {gpus}"] if gpus else [])])


def _partitions(facts: SlurmFacts, compute: Compute) -> list[Finding]:
    selected = facts.select(compute.partition)
    findings = []
    for row in facts.partitions[:_MAX_SHOWN]:
        mark = " (used by this target)" if row in selected else ""
        is_down = row.state not in (None, "up") or not row.usable
        state = WARNING if is_down and row in selected else OK
        findings.append(Finding(f"partition {row.name}{mark}", state, describe_partition(row)))
    if len(facts.partitions) > _MAX_SHOWN:
        findings.append(Finding("partitions", OK, f"{len(facts.partitions) - _MAX_SHOWN} more"))
    missing = [
        name for name in (compute.partition or "").split(",") if name not in {"", *(row.name for row in selected)}
    ]
    if missing or not selected:
        names = ", ".join(row.name for row in facts.partitions[:_MAX_SHOWN]) or "none"
        what = (
            f"partition {missing[0]} does not exist, or you may not use it"
            if missing
            else "the cluster has no default partition"
        )
        findings.append(Finding("partition", ERROR, f"{what}; available: {names}", "set another partition", _PAGE))
    return findings


def _accounts(facts: SlurmFacts, compute: Compute) -> list[Finding]:
    if not facts.accounting:
        text = "off: endings come from the run folder and from slurmctld only"
        return [Finding("accounting", OK, text)]
    if facts.accounts is None:
        return [Finding("accounting", WARNING, "on, but sacctmgr does not respond", "accounts cannot be checked")]
    if not facts.accounts:
        return [Finding("accounting", OK, f"on; {facts.user} has no accounts of their own")]
    names = list(dict.fromkeys(row.account for row in facts.accounts))
    qos = list(dict.fromkeys(name for row in facts.accounts for name in row.qos))
    found = f"on; accounts of {facts.user}: {', '.join(names[:_MAX_SHOWN])}; QoS: {', '.join(qos[:_MAX_SHOWN]) or '-'}"
    findings = [Finding("accounting", OK, found)]
    for key, value, available in (("account", compute.account, names), ("qos", compute.qos, qos)):
        if value and available and value not in available:
            what = f"{facts.user} has no {key} {value}; available: {', '.join(available[:_MAX_SHOWN])}"
            findings.append(Finding(key, ERROR, what, f"set another {key}", _PAGE))
    return findings


def _gpus(facts: SlurmFacts) -> Finding:
    if "gpu" not in facts.gres:
        return Finding("GPUs", OK, "none: the cluster has no generic resource gpu (GresTypes)")
    counts: dict[str, int] = {}
    for row in facts.partitions:
        for gpu in row.gpus:
            name = gpu.model or "of unknown model"
            counts[name] = max(counts.get(name, 0), gpu.total or 0)  # a node may be in several partitions
    return Finding("GPUs", OK, ", ".join(f"{count} {name}" for name, count in counts.items()) or "none on any node")


def _home(facts: SlurmFacts, where: str) -> Finding:
    kind = facts.file_system
    if kind in _LOCAL_FILE_SYSTEMS:
        hint = "runs need a home folder that all nodes share, such as NFS; ignore this on a cluster of one machine"
        return Finding(
            "home", WARNING, f"the home folder is on {kind}, which {where} usually shares with no other node", hint
        )
    return Finding("home", OK, f"the home folder is on {kind or 'a file system of unknown type'}")
