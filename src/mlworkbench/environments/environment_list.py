"""The environments of a machine, as it tells of them itself. What it says is checked: it may be anybody's machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..errors import HostError, UnknownName, UsageError
from ..hosts.host import Host
from ..hosts.replies import Reply, number

SHORT = 12  # digits of a digest that people get to see
PATIENCE = 1800.0  # seconds: to hash or to delete tens of gigabytes takes its time
_LONGEST = 10_000  # characters of any text
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Environment:
    """One that is there, or just being built."""

    digest: str
    path: str
    python: str | None
    platform: str | None
    packages: int | None
    built: float | None
    used: float | None
    runs: int
    going: tuple[str, ...]  # runs that use it now
    held: bool  # by somebody whose name may not be known
    building: bool
    size: int | None = None
    own: int | None = None  # what its removal would free: files that it shares with others stay

    @property
    def short(self) -> str:
        return self.digest[:SHORT]

    @property
    def state(self) -> str:
        return "being built" if self.building else "in use" if self.going or self.held else "ready"


@dataclass(frozen=True)
class Package:
    """One line of a lock."""

    name: str
    version: str
    build: str | None
    kind: str  # "conda" or "pip"
    source: str | None  # channel, or where the file came from; None if it was sent along


@dataclass(frozen=True)
class Details:
    """All about one."""

    environment: Environment
    packages: tuple[Package, ...]
    interpreter: str | None  # where its Python comes from: conda, uv or host
    home: str | None
    glibc: str | None
    cuda: str | None
    used_by: tuple[str, ...]
    sound: bool
    python_runs: bool  # it may be a link to one that is gone
    damage: tuple[str, ...] | None  # None: nobody has looked at every file

    def sources(self, kind: str) -> list[str]:
        return sorted({one.source for one in self.packages if one.kind == kind and one.source})


@dataclass(frozen=True)
class Removed:
    """What went, or would."""

    environments: tuple[tuple[str, int], ...]  # digest, bytes
    others: dict[str, tuple[int, int]]  # kind → count, bytes
    kept: tuple[Kept, ...]
    problems: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.environments) + sum(size for _, size in self.others.values())


@dataclass(frozen=True)
class Kept:
    """What has to stay."""

    name: str  # digest, or "caches"
    why: str
    runs: tuple[str, ...]
    named: bool  # by the user


class Inventory:
    """Asks one machine."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.leftovers = (0, 0)  # of broken builds: count and bytes, as of the last list

    def all(self, sizes: bool = True) -> list[Environment]:
        answer = self._ask({"do": "environments", "sizes": sizes})
        self.leftovers = _number(answer.get("leftovers")) or 0, _number(answer.get("leftover_bytes")) or 0
        said = answer.get("environments")
        return [one for one in map(_environment, said if isinstance(said, list) else ()) if one is not None]

    def find(self, names: Sequence[str]) -> list[str]:
        """Digests of those whose beginnings are given."""
        known = [one.digest for one in self.all(sizes=False)]
        return list(dict.fromkeys(_pick(name, known) for name in names))

    def show(self, name: str, verify: bool = False) -> Details:
        (digest,) = self.find([name])
        return _details(self._ask({"do": "environment", "digest": digest, "verify": verify}).get("environment"))

    def remove(self, digests: Sequence[str], *, unused: bool, idle: float, caches: bool, dry_run: bool) -> Removed:
        asked = {"digests": list(digests), "unused": unused, "idle": idle, "caches": caches, "dry_run": dry_run}
        answer = self._ask({"do": "environments-remove", **asked})
        others = answer.get("others")
        return Removed(
            tuple(
                (_text(one.get("digest")) or "", _number(one.get("bytes")) or 0) for one in _dicts(answer, "removed")
            ),
            {
                str(kind): (_number(sums.get("count")) or 0, _number(sums.get("bytes")) or 0)
                for kind, sums in (others.items() if isinstance(others, dict) else ())
                if isinstance(sums, dict)
            },
            tuple(
                Kept(
                    _text(one.get("name")) or "",
                    _text(one.get("why")) or "",
                    _texts(one, "runs"),
                    bool(one.get("named")),
                )
                for one in _dicts(answer, "kept")
            ),
            _texts(answer, "problems"),
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        who, answer = self._host.identity, self._host.ask(request, patience=PATIENCE)
        Reply(who, answer).require_ok(f"cannot list the environments on {who}")
        return answer


def _pick(name: str, known: Sequence[str]) -> str:
    found = [digest for digest in known if digest.startswith(name.lower())] if name else []
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"several environments start with {name}: {', '.join(one[:SHORT] for one in sorted(found))}",
            "use more digits",
        )
    raise UnknownName("environment", name, [one[:SHORT] for one in known])


def _environment(said: object) -> Environment | None:
    if not isinstance(said, dict) or not _DIGEST.fullmatch(str(said.get("digest"))):
        return None
    return Environment(
        digest=str(said["digest"]),
        path=_text(said.get("path")) or "",
        python=_text(said.get("python")),
        platform=_text(said.get("platform")),
        packages=_number(said.get("packages")),
        built=_time(said.get("built")),
        used=_time(said.get("used")),
        runs=_number(said.get("runs")) or 0,
        going=_texts(said, "going"),
        held=bool(said.get("held")),
        building=bool(said.get("building")),
        size=_number(said.get("size")),
        own=_number(said.get("own")),
    )


def _details(said: object) -> Details:
    environment = _environment(said)
    if environment is None or not isinstance(said, dict):
        raise HostError("invalid response from the machine")
    return Details(
        environment,
        tuple(_package(one, kind) for kind in ("conda", "pip") for one in _dicts(said, kind)),
        _text(said.get("source")),
        _text(said.get("home")),
        _text(said.get("glibc")),
        _text(said.get("cuda")),
        _texts(said, "used_by"),
        bool(said.get("sound")),
        bool(said.get("runs_here")),
        _texts(said, "damage") if "damage" in said else None,
    )


def _package(said: dict[str, Any], kind: str) -> Package:
    build = _text(said.get("build"))
    return Package(_text(said.get("name")) or "", _text(said.get("version")) or "", build, kind, _source(said, kind))


def _source(said: dict[str, Any], kind: str) -> str | None:
    """The channel of conda's; the host of a file; the commit of a repository."""
    if said.get("git"):
        return f"{said['git']}@{str(said.get('commit'))[:SHORT]}"
    url = _text(said.get("url"))
    if not url:
        return None
    if kind == "conda":
        return url.rsplit("/", 2)[0]
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _dicts(said: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = said.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _texts(said: dict[str, Any], name: str) -> tuple[str, ...]:
    found = said.get(name)
    return tuple(str(one) for one in found) if isinstance(found, list) else ()


def _text(value: object) -> str | None:
    return str(value)[:_LONGEST] if isinstance(value, (str, int, float)) else None


def _number(value: object) -> int | None:
    found = number(value)
    return found if isinstance(found, int) and found >= 0 else None


def _time(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e11 else None
