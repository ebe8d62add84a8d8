"""What a root folder on another machine holds and whose it is, as values: checked here, for a machine may lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..remote.shared.client_id import CLIENT
from .host import Host
from .replies import LARGEST, MalformedReply, Reply, part_of, printable

_MOST = 100_000  # runs of one machine
_PATIENCE = 600.0  # seconds: sizes of a large folder on a slow disk
_LONGEST = 200  # characters of a name
_LATEST = 1e11  # seconds since 1970, in the year 5138
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@dataclass(frozen=True)
class TargetClient:
    """A laptop that uses the account there."""

    id: str
    name: str
    seen: float  # by the clock of the target


@dataclass(frozen=True)
class TargetFolder:
    """A shared folder, or the home of containers."""

    name: str
    bytes: int
    changed: float


@dataclass(frozen=True)
class TargetRun:
    """A run folder. ``client``: who submitted it; None: it has no mark."""

    id: str
    client: str | None
    project: str
    project_id: str
    created: float
    changed: float
    bytes: int
    claimed: bool
    ended: bool
    going: bool  # supervised at the moment
    empty: bool
    fetched: tuple[str, ...]  # IDs of clients that have everything of it


@dataclass(frozen=True)
class Survey:
    """All of it. ``now`` is the target's clock, by which its times are to be read."""

    now: float
    runs: tuple[TargetRun, ...] = ()
    clients: tuple[TargetClient, ...] = ()
    shared: tuple[TargetFolder, ...] = ()
    homes: tuple[TargetFolder, ...] = ()
    replaceable: int = 0  # bytes of what can be built or sent again
    other: tuple[str, ...] = field(default=())  # names that are none of ours
    where: str = ""  # the machine: what a target is called is the choice of its project


def ask_survey(host: Host, *, sizes: bool) -> Survey:
    """Ask page by page. A machine whose pages do not go on in order is not believed."""
    first = _page(host, "", sizes)
    runs = list(_runs(host, first, ""))
    page = first
    while page.given("more"):
        if not runs or len(runs) > _MOST:
            raise MalformedReply(host.identity, "the list of runs is too long")
        page = _page(host, runs[-1].id, sizes)
        runs += _runs(host, page, runs[-1].id)
    return Survey(
        now=_time(first.number("now")),
        runs=tuple(runs),
        clients=tuple(_clients(host, first)),
        shared=tuple(_folders(host, first, "shared")),
        homes=tuple(_folders(host, first, "homes")),
        replaceable=_count(first.whole("replaceable")),
        other=tuple(first.texts("other")),
        where=host.identity,
    )


def _page(host: Host, after: str, sizes: bool) -> Reply:
    request = {"do": "survey", "after": after, "sizes": sizes}
    reply = Reply(host.identity, host.ask(request, patience=_PATIENCE))
    return reply.require_ok(f"{host.identity} cannot list its runs")


def _runs(host: Host, page: Reply, last: str) -> Iterator[TargetRun]:
    for told in _objects(host, page, "runs"):
        raw = part_of(_RawRun, told, _LONGEST)
        name = raw.id or ""
        if name <= last or len(name) > _LONGEST - 1:
            raise MalformedReply(host.identity, "the list of runs is not sorted")
        last = name
        fetched = told.get("fetched")
        yield TargetRun(
            id=name,
            client=raw.client if raw.client and CLIENT.fullmatch(raw.client) else None,
            project=printable(raw.project or ""),
            project_id=printable(raw.project_id or ""),
            created=_time(raw.created),
            changed=_time(raw.changed),
            bytes=_count(raw.bytes),
            claimed=raw.claimed is True,
            ended=raw.ended is True,
            going=raw.going is True,
            empty=raw.empty is True,
            fetched=tuple(one for one in fetched if isinstance(one, str)) if isinstance(fetched, list) else (),
        )


@dataclass(frozen=True)
class _RawRun:
    id: str | None = None
    client: str | None = None
    project: str | None = None
    project_id: str | None = None
    created: float | None = None
    changed: float | None = None
    bytes: int | None = None
    claimed: bool | None = None
    ended: bool | None = None
    going: bool | None = None
    empty: bool | None = None


@dataclass(frozen=True)
class _RawEntry:
    id: str | None = None
    name: str | None = None
    seen: float | None = None
    changed: float | None = None
    bytes: int | None = None


def _clients(host: Host, page: Reply) -> Iterator[TargetClient]:
    for told in _objects(host, page, "clients"):
        raw = part_of(_RawEntry, told, _LONGEST)
        if raw.id and CLIENT.fullmatch(raw.id):
            yield TargetClient(raw.id, printable(raw.name or "") or raw.id[:8], _time(raw.seen))


def _folders(host: Host, page: Reply, kind: str) -> Iterator[TargetFolder]:
    for told in _objects(host, page, kind):
        raw = part_of(_RawEntry, told, 4096)
        if raw.name:
            yield TargetFolder(raw.name, _count(raw.bytes), _time(raw.changed))


def _objects(host: Host, page: Reply, name: str) -> Iterator[Mapping[str, Any]]:
    for told in page.items(name):
        if not isinstance(told, Mapping):
            raise MalformedReply(host.identity, f"an entry of {name} is not an object")
        yield told


def is_run_id(name: str) -> bool:
    """Whether a name from another machine can be the name of a folder here."""
    return bool(name) and len(name) < _LONGEST and name[0] not in ".-" and _LETTERS.issuperset(name)


def _time(value: float | None) -> float:
    return value if value is not None and 0 <= value < _LATEST else 0.0


def _count(value: int | None) -> int:
    return value if value is not None and 0 <= value < LARGEST else 0
