"""The environments on a machine. Replies are validated because the machine may not be trustworthy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..errors import HostError, UnknownName, UsageError
from ..hosts.host import Host
from ..hosts.replies import Reply, number

SHORT_DIGEST = 12  # digits of a digest in output
TIMEOUT = 1800.0  # seconds; hashing or deleting tens of gigabytes is slow
_MAX_TEXT = 10_000  # maximum length of a reply string
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Environment:
    """An environment that exists or is being built."""

    digest: str
    path: str
    python: str | None
    platform: str | None
    packages: int | None
    built: float | None
    used: float | None
    runs: int
    active_runs: tuple[str, ...]  # IDs of runs that use it now
    in_use: bool  # any process uses it, even one of an unknown run
    building: bool
    size: int | None = None
    own_size: int | None = None  # bytes freed by removing it, excluding files shared with other environments

    @property
    def short(self) -> str:
        return self.digest[:SHORT_DIGEST]

    @property
    def state(self) -> str:
        return "being built" if self.building else "in use" if self.active_runs or self.in_use else "ready"


@dataclass(frozen=True)
class Package:
    """A package in the lock file of an environment."""

    name: str
    version: str
    build: str | None
    kind: str  # "conda" or "pip"
    source: str | None  # channel, host, or repository and commit; None if uploaded


@dataclass(frozen=True)
class Details:
    """An environment with its packages, origin, and integrity."""

    environment: Environment
    packages: tuple[Package, ...]
    interpreter: str | None  # source of Python: conda, uv, or host
    home: str | None
    glibc: str | None
    cuda: str | None
    used_by: tuple[str, ...]
    intact: bool
    python_runs: bool  # false if its Python is missing or a broken link
    damage: tuple[str, ...] | None  # None: files were not verified

    def sources(self, kind: str) -> list[str]:
        return sorted({package.source for package in self.packages if package.kind == kind and package.source})


@dataclass(frozen=True)
class RemovalResult:
    """What a removal deleted and kept, or what a dry run would delete and keep."""

    environments: tuple[tuple[str, int], ...]  # digest, bytes
    others: dict[str, tuple[int, int]]  # kind → count, bytes
    kept: tuple[KeptItem, ...]
    problems: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.environments) + sum(size for _, size in self.others.values())


@dataclass(frozen=True)
class KeptItem:
    """An environment or cache that cannot be removed."""

    name: str  # digest, or "caches"
    why: str
    runs: tuple[str, ...]
    named: bool  # selected by the user


class Inventory:
    """The environments on one machine, which can be listed and removed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.leftovers = (0, 0)  # remains of failed builds: count and bytes, set by `all`

    def all(self, sizes: bool = True) -> list[Environment]:
        answer = self._request({"do": "environments", "sizes": sizes})
        self.leftovers = _number(answer.get("leftovers")) or 0, _number(answer.get("leftover_bytes")) or 0
        entries = answer.get("environments")
        return [
            environment
            for environment in map(_parse_environment, entries if isinstance(entries, list) else ())
            if environment is not None
        ]

    def find(self, names: Sequence[str]) -> list[str]:
        """Return the digests that start with the given prefixes."""
        digests = [environment.digest for environment in self.all(sizes=False)]
        return list(dict.fromkeys(_match_digest(name, digests) for name in names))

    def show(self, name: str, verify: bool = False) -> Details:
        (digest,) = self.find([name])
        return _parse_details(
            self._request({"do": "environment", "digest": digest, "verify": verify}).get("environment")
        )

    def remove(
        self, digests: Sequence[str], *, unused: bool, idle: float, caches: bool, dry_run: bool
    ) -> RemovalResult:
        options = {"digests": list(digests), "unused": unused, "idle": idle, "caches": caches, "dry_run": dry_run}
        answer = self._request({"do": "environments-remove", **options})
        others = answer.get("others")
        return RemovalResult(
            tuple(
                (_text(entry.get("digest")) or "", _number(entry.get("bytes")) or 0)
                for entry in _dicts(answer, "removed")
            ),
            {
                str(kind): (_number(totals.get("count")) or 0, _number(totals.get("bytes")) or 0)
                for kind, totals in (others.items() if isinstance(others, dict) else ())
                if isinstance(totals, dict)
            },
            tuple(
                KeptItem(
                    _text(entry.get("name")) or "",
                    _text(entry.get("why")) or "",
                    _texts(entry, "runs"),
                    bool(entry.get("named")),
                )
                for entry in _dicts(answer, "kept")
            ),
            _texts(answer, "problems"),
        )

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        name, answer = self._host.identity, self._host.ask(request, timeout=TIMEOUT)
        Reply(name, answer).require_ok(f"cannot list the environments on {name}")
        return answer


def _match_digest(name: str, digests: Sequence[str]) -> str:
    matches = [digest for digest in digests if digest.startswith(name.lower())] if name else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(
            f"several environments start with {name}: {', '.join(match[:SHORT_DIGEST] for match in sorted(matches))}",
            "use more digits",
        )
    raise UnknownName("environment", name, [match[:SHORT_DIGEST] for match in digests])


def _parse_environment(data: object) -> Environment | None:
    if not isinstance(data, dict) or not _DIGEST.fullmatch(str(data.get("digest"))):
        return None
    return Environment(
        digest=str(data["digest"]),
        path=_text(data.get("path")) or "",
        python=_text(data.get("python")),
        platform=_text(data.get("platform")),
        packages=_number(data.get("packages")),
        built=_time(data.get("built")),
        used=_time(data.get("used")),
        runs=_number(data.get("runs")) or 0,
        active_runs=_texts(data, "going"),
        in_use=bool(data.get("held")),
        building=bool(data.get("building")),
        size=_number(data.get("size")),
        own_size=_number(data.get("own")),
    )


def _parse_details(data: object) -> Details:
    environment = _parse_environment(data)
    if environment is None or not isinstance(data, dict):
        raise HostError("invalid response from the machine")
    return Details(
        environment,
        tuple(_parse_package(entry, kind) for kind in ("conda", "pip") for entry in _dicts(data, kind)),
        _text(data.get("source")),
        _text(data.get("home")),
        _text(data.get("glibc")),
        _text(data.get("cuda")),
        _texts(data, "used_by"),
        bool(data.get("sound")),
        bool(data.get("runs_here")),
        _texts(data, "damage") if "damage" in data else None,
    )


def _parse_package(data: dict[str, Any], kind: str) -> Package:
    build = _text(data.get("build"))
    return Package(
        _text(data.get("name")) or "", _text(data.get("version")) or "", build, kind, _package_source(data, kind)
    )


def _package_source(data: dict[str, Any], kind: str) -> str | None:
    """Return the source of a package: a conda channel, a host, or a repository and commit."""
    if data.get("git"):
        return f"{data['git']}@{str(data.get('commit'))[:SHORT_DIGEST]}"
    url = _text(data.get("url"))
    if not url:
        return None
    if kind == "conda":
        return url.rsplit("/", 2)[0]
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _dicts(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = data.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _texts(data: dict[str, Any], name: str) -> tuple[str, ...]:
    items = data.get(name)
    return tuple(str(item) for item in items) if isinstance(items, list) else ()


def _text(value: object) -> str | None:
    return str(value)[:_MAX_TEXT] if isinstance(value, (str, int, float)) else None


def _number(value: object) -> int | None:
    result = number(value)
    return result if isinstance(result, int) and result >= 0 else None


def _time(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e11 else None
