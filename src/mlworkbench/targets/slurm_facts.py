"""Facts about a Slurm cluster, validated from a reply of ``remote/slurm/facts.py``, and their cache."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..hosts.host import Host
from ..hosts.replies import Reply, parse_dataclass, printable
from ..paths import UserPaths
from ..remote.shared.untrusted_json import parse_json

_CACHE_SECONDS = 24 * 3600.0
_MAX_ITEMS, _MAX_TEXT = 500, 200
_TIMEOUT = 60.0
NO_PROGRAM = "no-program"  # value of ``SlurmFacts.problem``: sbatch is not installed
T = TypeVar("T")


@dataclass(frozen=True)
class GpuCount:
    """GPUs of one model in a partition."""

    model: str | None = None
    total: int | None = None
    used: int | None = None
    unusable: int | None = None  # not allocated, on nodes that start no jobs
    per_node: int | None = None  # maximum on one node

    @property
    def free(self) -> int:
        return max(0, (self.total or 0) - (self.used or 0) - (self.unusable or 0))


@dataclass(frozen=True)
class Partition:
    """A partition. Times in seconds; None for a time means that there is no limit."""

    name: str
    default: bool | None = None
    state: str | None = None
    max_time: int | None = None
    default_time: int | None = None
    nodes: int | None = None
    usable: int | None = None  # nodes that start jobs
    cpus: int | None = None  # maximum on one node
    memory: int | None = None  # maximum on one node, in MiB
    gpus: tuple[GpuCount, ...] = ()

    def gpus_per_node(self, model: str | None = None) -> int:
        """Return the maximum number of GPUs of a job on one node. ``model``: None for any model."""
        counts = [gpu.per_node or 0 for gpu in self.gpus if model is None or _same(gpu.model, model)]
        return max(counts, default=0)


@dataclass(frozen=True)
class Account:
    """An account that the user may charge jobs to."""

    account: str
    partition: str | None = None  # None: any
    default_qos: str | None = None
    qos: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlurmFacts:
    """Facts about a cluster. ``problem``: why the machine cannot submit jobs."""

    problem: str | None = None
    reason: str | None = None
    version: str | None = None
    cluster: str | None = None
    max_array_size: int | None = None
    accounting: bool | None = None
    user: str | None = None
    file_system: str | None = None  # of mlw's folder
    gres: tuple[str, ...] = ()
    accounts: tuple[Account, ...] | None = None  # None: not known
    partitions: tuple[Partition, ...] = ()

    def select(self, names: str | None) -> tuple[Partition, ...]:
        """Return the partitions in a list such as ``gpu,low``; for None, the default partition."""
        selected = () if names is None else names.split(",")
        return tuple(row for row in self.partitions if (row.default if names is None else row.name in selected))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SlurmFacts:
        accounts = data.get("accounts")
        parsed = tuple(
            parse_dataclass(Account, item, _MAX_TEXT, qos=_texts(item.get("qos")))
            for item in _mappings(accounts)
            if isinstance(item.get("account"), str)
        )
        return _clean(
            parse_dataclass(
                SlurmFacts,
                data,
                gres=_texts(data.get("gres")),
                accounts=parsed if isinstance(accounts, list) else None,
                partitions=tuple(
                    parse_dataclass(Partition, item, _MAX_TEXT, gpus=_gpus(item.get("gpus")))
                    for item in _mappings(data.get("partitions"))
                    if isinstance(item.get("name"), str)
                ),
            )
        )


def _gpus(value: object) -> tuple[GpuCount, ...]:
    return tuple(_clean(parse_dataclass(GpuCount, item, _MAX_TEXT)) for item in _mappings(value))


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value[:_MAX_ITEMS] if isinstance(item, Mapping)] if isinstance(value, list) else []


def _texts(value: object) -> tuple[str, ...]:
    items = value[:_MAX_ITEMS] if isinstance(value, list) else []
    return tuple(printable(item, _MAX_TEXT) for item in items if isinstance(item, str))


def _clean(facts: T) -> T:
    """Make the texts safe to print in a terminal."""
    for name, value in vars(facts).items():
        if isinstance(value, str):
            object.__setattr__(facts, name, printable(value))
        elif isinstance(value, tuple):
            for item in value:
                if not isinstance(item, str):
                    _clean(item)
    return facts


def _same(model: str | None, requested: str) -> bool:
    return model is not None and model.lower() == requested.lower()


def fetch_slurm_facts(host: Host, *, nodes_only: bool = False) -> SlurmFacts:
    """Ask the login node for the facts. ``nodes_only``: only for partitions and their nodes, which costs less."""
    return SlurmFacts.from_json(_ask(host, nodes_only))


def _ask(host: Host, nodes_only: bool = False) -> Mapping[str, Any]:
    reply = Reply(host.identity, host.ask({"do": "slurm facts", "nodes_only": nodes_only}, timeout=_TIMEOUT))
    return reply.require_ok(f"{host.identity} cannot report the facts about Slurm").mapping("facts")


def known_slurm_facts(host: Host, paths: UserPaths) -> SlurmFacts | None:
    """Return the facts that ``update_slurm_facts`` stored within the last day."""
    try:
        with open(_cache(host, paths), "rb") as file:
            cached = parse_json(file.read())
        if 0 <= time.time() - cached["time"] < _CACHE_SECONDS:
            return SlurmFacts.from_json(cached["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # missing or damaged
    return None


def update_slurm_facts(host: Host, paths: UserPaths) -> SlurmFacts:
    """Ask the login node for the facts, and store them for the checks of later submissions."""
    data = _ask(host)
    facts, path = SlurmFacts.from_json(data), _cache(host, paths)
    if facts.problem is None:
        part = f"{path}.{os.urandom(4).hex()}.part"
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({"time": time.time(), "facts": data}, file)
        os.replace(part, path)
    return facts


def _cache(host: Host, paths: UserPaths) -> str:
    attachment = host.attachment
    where = attachment.where if attachment else host.identity
    name = hashlib.sha256(where.encode()).hexdigest()[:16]
    return os.path.join(str(paths.home), "cache", f"slurm-{name}.json")
