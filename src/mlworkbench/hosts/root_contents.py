"""Data classes for the contents of a remote machine's root folder, validated from untrusted replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..remote.shared.client_id import CLIENT
from .host import Host
from .replies import MAX_NUMBER, MalformedReply, Reply, parse_dataclass, printable

_MAX_RUNS = 100_000  # maximum number per machine
_TIMEOUT = 600.0  # seconds; computing the size of a large folder on a slow disk takes long
_MAX_NAME = 200  # in characters
_MAX_TIME = 1e11  # seconds since 1970; the year 5138
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@dataclass(frozen=True)
class TargetClient:
    """A client that uses this account on the target."""

    id: str
    name: str
    seen: float  # time of the last connection, according to the target's clock


@dataclass(frozen=True)
class TargetFolder:
    """A shared folder, or a home folder for containers."""

    name: str
    bytes: int
    changed: float


@dataclass(frozen=True)
class TargetRun:
    """A run folder. ``client`` is the client that submitted the run, or None if it was not recorded."""

    id: str
    client: str | None
    project: str
    project_id: str
    created: float
    changed: float
    bytes: int
    claimed: bool
    ended: bool
    is_supervised: bool  # the run has a supervisor now
    empty: bool
    fetched: tuple[str, ...]  # IDs of clients that have fetched all data


@dataclass(frozen=True)
class Survey:
    """Contents of a root folder. ``now`` is the time on the target's clock, to which all times refer."""

    now: float
    runs: tuple[TargetRun, ...] = ()
    clients: tuple[TargetClient, ...] = ()
    shared: tuple[TargetFolder, ...] = ()
    homes: tuple[TargetFolder, ...] = ()
    replaceable: int = 0  # bytes of data that can be rebuilt or uploaded again
    other: tuple[str, ...] = field(default=())  # names of entries that do not belong to mlw
    where: str = ""  # the machine's identity; target names depend on the project


def fetch_survey(host: Host, *, sizes: bool) -> Survey:
    """Fetch the survey page by page. Raises MalformedReply if pages arrive out of order."""
    first = _fetch_page(host, "", sizes)
    runs = list(_parse_runs(host, first, ""))
    page = first
    while page.has_value("more"):
        if not runs or len(runs) > _MAX_RUNS:
            raise MalformedReply(host.identity, "the list of runs is too long")
        page = _fetch_page(host, runs[-1].id, sizes)
        runs += _parse_runs(host, page, runs[-1].id)
    return Survey(
        now=_valid_time(first.number("now")),
        runs=tuple(runs),
        clients=tuple(_parse_clients(host, first)),
        shared=tuple(_parse_folders(host, first, "shared")),
        homes=tuple(_parse_folders(host, first, "homes")),
        replaceable=_valid_count(first.integer("replaceable")),
        other=tuple(first.texts("other")),
        where=host.identity,
    )


def _fetch_page(host: Host, after: str, sizes: bool) -> Reply:
    request = {"do": "survey", "after": after, "sizes": sizes}
    reply = Reply(host.identity, host.ask(request, timeout=_TIMEOUT))
    return reply.require_ok(f"{host.identity} cannot list its runs")


def _parse_runs(host: Host, page: Reply, last: str) -> Iterator[TargetRun]:
    for entry in _entries(host, page, "runs"):
        raw = parse_dataclass(_RawRun, entry, _MAX_NAME)
        name = raw.id or ""
        if len(name) > _MAX_NAME - 1:
            raise MalformedReply(host.identity, "a run ID is too long")
        if name <= last:
            raise MalformedReply(host.identity, "the list of runs is not sorted")
        last = name
        fetched = entry.get("fetched")
        yield TargetRun(
            id=name,
            client=raw.client if raw.client and CLIENT.fullmatch(raw.client) else None,
            project=printable(raw.project or ""),
            project_id=printable(raw.project_id or ""),
            created=_valid_time(raw.created),
            changed=_valid_time(raw.changed),
            bytes=_valid_count(raw.bytes),
            claimed=raw.claimed is True,
            ended=raw.ended is True,
            is_supervised=raw.going is True,
            empty=raw.empty is True,
            fetched=tuple(client_id for client_id in fetched if isinstance(client_id, str))
            if isinstance(fetched, list)
            else (),
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


def _parse_clients(host: Host, page: Reply) -> Iterator[TargetClient]:
    for entry in _entries(host, page, "clients"):
        raw = parse_dataclass(_RawEntry, entry, _MAX_NAME)
        if raw.id and CLIENT.fullmatch(raw.id):
            yield TargetClient(raw.id, printable(raw.name or "") or raw.id[:8], _valid_time(raw.seen))


def _parse_folders(host: Host, page: Reply, kind: str) -> Iterator[TargetFolder]:
    for entry in _entries(host, page, kind):
        raw = parse_dataclass(_RawEntry, entry, 4096)
        if raw.name:
            yield TargetFolder(raw.name, _valid_count(raw.bytes), _valid_time(raw.changed))


def _entries(host: Host, page: Reply, name: str) -> Iterator[Mapping[str, Any]]:
    for entry in page.items(name):
        if not isinstance(entry, Mapping):
            raise MalformedReply(host.identity, f"an entry of {name} is not an object")
        yield entry


def is_run_id(name: str) -> bool:
    """Return whether a name from a remote machine is safe to use as a local folder name."""
    return bool(name) and len(name) < _MAX_NAME and name[0] not in ".-" and _ID_CHARACTERS.issuperset(name)


def _valid_time(value: float | None) -> float:
    return value if value is not None and 0 <= value < _MAX_TIME else 0.0


def _valid_count(value: int | None) -> int:
    return value if value is not None and 0 <= value < MAX_NUMBER else 0
