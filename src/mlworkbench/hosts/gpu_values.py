"""Data classes for a machine's GPUs, validated from a reply of ``remote/gpus/gpu_listing.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .host import Host
from .replies import Reply, parse_dataclass

_MAX_ITEMS = 256  # Maximum GPUs per machine, and slices per GPU
_MAX_PROCESSES = 1000
_MAX_TEXT = 200  # in characters
_TIMEOUT = 60.0
T = TypeVar("T")


@dataclass(frozen=True)
class Process:
    """A process on a GPU, and its run. Fields that the machine does not show are None."""

    pid: int | None = None
    memory: int | None = None
    kind: str | None = None
    run: str | None = None
    user: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Slice:
    """A MIG device."""

    uuid: str | None = None
    name: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None


@dataclass(frozen=True)
class Holder:
    """The holder of a GPU: a run of any user, or something else, in which case ``run`` is None."""

    user: str | None = None
    run: str | None = None
    pid: int | None = None  # if the holder is a visible process that is not a run


@dataclass(frozen=True)
class Gpu:
    """A GPU. Values that the GPU does not report are None, never 0."""

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    capability: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    memory_free: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None
    bus_id: str | None = None
    memory_clock: int | None = None
    error: str | None = None
    error_code: str | None = None  # one of remote/shared/gpu_problems.py
    held: Holder | None = None
    mig: tuple[Slice, ...] = ()
    processes: tuple[Process, ...] | None = None


@dataclass(frozen=True)
class Gpus:
    """All GPUs of a machine. ``problem`` is the reason if they cannot be listed."""

    driver: str | None = None
    cuda: str | None = None
    source: str | None = None
    problem: str | None = None
    problem_code: str | None = None  # one of remote/shared/gpu_problems.py
    note: str | None = None  # about the GPUs of a scheduler, which are not listed one by one
    gpus: tuple[Gpu, ...] = ()

    @classmethod
    def from_json(cls, data: object) -> Gpus:
        """Build the object from a reply, dropping invalid parts."""
        if not isinstance(data, Mapping):
            return cls(problem="the response of the machine is invalid")
        entries = data.get("gpus")
        texts = {name: _text(data.get(name)) for name in ("driver", "cuda", "source", "problem", "problem_code")}
        return cls(gpus=tuple(_parse_gpu(entry) for entry in _parse_list(entries, _MAX_ITEMS)), **texts)


def fetch_gpus(host: Host) -> Gpus:
    """Return the current state of the host's GPUs."""
    reply = Reply(host.identity, host.ask({"do": "gpus"}, timeout=_TIMEOUT))
    return Gpus.from_json(reply.require_ok(f"{host.identity} cannot list its GPUs").mapping("gpus"))


def _parse_gpu(data: Mapping[str, Any]) -> Gpu:
    held, processes = data.get("held"), data.get("processes")
    return _parse(
        Gpu,
        data,
        held=_parse(Holder, held) if isinstance(held, Mapping) else None,
        mig=tuple(_parse(Slice, entry) for entry in _parse_list(data.get("mig"), _MAX_ITEMS)),
        processes=None
        if processes is None
        else tuple(_parse(Process, entry) for entry in _parse_list(processes, _MAX_PROCESSES)),
    )


def _parse(kind: type[T], data: Mapping[str, Any], **overrides: Any) -> T:
    return parse_dataclass(kind, data, _MAX_TEXT, **overrides)


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None


def _parse_list(value: object, limit: int) -> list[Mapping[str, Any]]:
    return [entry for entry in value[:limit] if isinstance(entry, Mapping)] if isinstance(value, list) else []
