"""GPUs of a machine, as values: made from what ``remote/gpus/report.py`` told there, which is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .host import Host
from .replies import Reply, part_of

_MOST = 256  # GPUs of one machine, slices of one GPU
_PROCESSES = 1000
_LONGEST = 200  # characters of any text
_PATIENCE = 60.0
Part = TypeVar("Part")


@dataclass(frozen=True)
class Process:
    """Who has something on a GPU. ``run``: a run of ours; the rest is None where the machine does not show it."""

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
    """Whose run holds a GPU, whichever user's; ``run`` is None where something that is not a run holds it."""

    user: str | None = None
    run: str | None = None
    pid: int | None = None  # of what is not a run, where it can be seen


@dataclass(frozen=True)
class Gpu:
    """One card. What it does not tell is None, never 0."""

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
    held: Holder | None = None
    mig: tuple[Slice, ...] = ()
    processes: tuple[Process, ...] | None = None


@dataclass(frozen=True)
class Gpus:
    """All of a machine. ``problem``: why they cannot be asked."""

    driver: str | None = None
    cuda: str | None = None
    source: str | None = None
    problem: str | None = None
    gpus: tuple[Gpu, ...] = ()

    @classmethod
    def from_json(cls, data: object) -> Gpus:
        """What is not as it should be is left out."""
        if not isinstance(data, Mapping):
            return cls(problem="the response of the machine is invalid")
        cards = data.get("gpus")
        plain = {name: _text(data.get(name)) for name in ("driver", "cuda", "source", "problem")}
        return cls(gpus=tuple(_gpu(one) for one in _list(cards, _MOST)), **plain)


def ask_gpus(host: Host) -> Gpus:
    """As they are now."""
    reply = Reply(host.identity, host.ask({"do": "gpus"}, patience=_PATIENCE))
    return Gpus.from_json(reply.require_ok(f"{host.identity} cannot list its GPUs").mapping("gpus"))


def _gpu(data: Mapping[str, Any]) -> Gpu:
    held, processes = data.get("held"), data.get("processes")
    return _part(
        Gpu,
        data,
        held=_part(Holder, held) if isinstance(held, Mapping) else None,
        mig=tuple(_part(Slice, one) for one in _list(data.get("mig"), _MOST)),
        processes=None if processes is None else tuple(_part(Process, one) for one in _list(processes, _PROCESSES)),
    )


def _part(kind: type[Part], data: Mapping[str, Any], **given: Any) -> Part:
    return part_of(kind, data, _LONGEST, **given)


def _text(value: object) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) else None


def _list(value: object, most: int) -> list[Mapping[str, Any]]:
    return [one for one in value[:most] if isinstance(one, Mapping)] if isinstance(value, list) else []
