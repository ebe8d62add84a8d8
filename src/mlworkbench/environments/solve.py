"""From what a project asks for and a target's platform to a lock: every package, to the last digest.

Solved here, on the user's machine, whatever the target is; answers are kept for a week. A lock holds no secret:
addresses lose their passwords and tokens, and such packages are marked ``private``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import ConfigError, NotFetched, SolveError
from ..model import JsonDict
from ..remote.shared.environment_layout import FORMAT, MANAGED, digest_of
from ..remote.shared.untrusted import parse_json
from .channels import (
    Indexes,
    channels_of,
    indexes_of,
    is_absolute,
    is_local_channel,
    is_remote,
    known_words,
    mask,
    user_indexes,
)
from .conda import Asked, provided, solve_conda
from .dependencies import PIXI_LOCK, UV_LOCK, Dependencies
from .libc import has_sources, needed_glibc
from .local_files import check_sources, conda_files
from .local_files import digest_of as file_digest
from .named_secrets import NamedSecrets
from .pinned_tools import Installer, find_tools, table_digest
from .pip import Found, Wanted, requirement, solve_pip
from .platforms import Platform
from .pythons import DEFAULT, OLDEST_FOR_UV, choose_python, satisfies
from .sources import Builds

KEPT_FOR = 7 * 24 * 3600.0
_KEY_VERSION = 2  # version 1 remembered locks of uv workspaces above the project under the key of the project
# Settings of the user's for uv that change what it finds.
_UV_SETTINGS = (
    *("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("UV_INDEX_STRATEGY", "UV_PRERELEASE", "UV_RESOLUTION", "UV_EXCLUDE_NEWER", "UV_TORCH_BACKEND"),
    *("UV_NO_BUILD", "UV_NO_BINARY", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_PYTHON_DOWNLOADS_JSON_URL"),
    "UV_PYTHON_INSTALL_MIRROR",
)
_CONDA_FILE = re.compile(r"\.(?:conda|tar\.bz2)\b")  # a package by its address
_FLAGS = {"--pre": ["--prerelease", "allow"]}


@dataclass(frozen=True)
class Request:
    """What to solve. ``platform`` is where the packages run, ``machine`` where they are installed: an image may have
    an older C library than the machine around it."""

    dependencies: Dependencies
    platform: Platform
    root: Path  # the project
    machine: Platform | None = None
    host: tuple[str, str] | None = None  # path and version of a Python of the target's that may serve
    installer: str = "3.10"  # version of the Python that our program runs on there; py-rattler must fit it
    fallback: Platform | None = None  # the machine as it is, where ``platform`` is an aim that need not be met
    builds: Builds = Builds()
    folders: tuple[Path, ...] = ()  # outside the project, whose packages the user allows


@dataclass(frozen=True)
class Solved:
    """A lock, and the files of this machine that it names: digest → path. They have to be sent along."""

    lock: JsonDict
    files: Mapping[str, Path] = field(default_factory=dict)
    kept: bool = False  # from an earlier time


def solve(
    request: Request,
    cache: Path,
    environ: Mapping[str, str],
    *,
    refresh: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Solved:
    """The lock for a request; raises SolveError with the resolver's explanation. ``tell``: what takes its time."""
    check_sources(request.dependencies, request.root, request.folders)
    indexes = indexes_of(request.dependencies, environ, request.root)
    note = cache / "locks" / f"{_key(request, indexes, environ)}.json"
    known = None if refresh else _recall(note)
    if known:
        return replace(known, lock=NamedSecrets.of(environ).hidden(known.lock))  # an earlier version may have kept it
    tell(f"resolving the packages of {request.dependencies.file or 'the project'} for {request.platform.subdir}")
    solved = _solve(request, indexes, cache, environ)
    where = Installer(request.machine or request.platform, request.installer)
    solved = with_tools(solved, where, cache, environ, tell)
    if _is_complete(solved):
        _remember(note, solved)
    return solved


def _is_complete(solved: Solved) -> bool:
    """Whether each tool can be had: an index that did not answer may do so at the next submit."""
    return all(one.get("url") or str(one["sha256"]) in solved.files for one in solved.lock["tools"])


def with_tools(
    solved: Solved, where: Installer, cache: Path, environ: Mapping[str, str], tell: Callable[[str], None]
) -> Solved:
    """With what builds it there, which is no part of what it is: whatever tools a lock named before, these are used."""
    conda = bool(solved.lock["conda"])
    tools, files = find_tools(where, conda=conda, cache=cache, environ=environ, tell=tell)
    lock = NamedSecrets.of(environ).hidden({**solved.lock, "tools": tools})
    return replace(solved, lock=lock, files={**solved.files, **files})


def _solve(request: Request, indexes: Indexes, cache: Path, environ: Mapping[str, str]) -> Solved:
    """For the aim; if that cannot be, or not without building from source, for the machine as it is."""
    if request.fallback is None or request.fallback.libc == request.platform.libc:
        return _Solver(request, indexes, cache, environ).solve()
    first = None
    try:
        first = _Solver(request, indexes, cache, environ).solve()
        if not has_sources(first.lock):
            return first
    except NotFetched:
        raise  # for the machine as it is nobody would answer either
    except SolveError:
        pass  # the machine's own explanation is the better one
    try:
        second = _Solver(replace(request, platform=request.fallback), indexes, cache, environ, request.platform).solve()
    except SolveError:
        if first is None:
            raise
        return first
    return first if first and has_sources(second.lock) else second


class _Solver:
    """One solve."""

    def __init__(
        self,
        request: Request,
        indexes: Indexes,
        cache: Path,
        environ: Mapping[str, str],
        aim: Platform | None = None,  # what counts for packages that do not say which C library they need
    ) -> None:
        self._request = request
        self._aim = aim or request.platform
        self._asked = request.dependencies
        self._indexes = indexes
        self._cache = cache
        self._environ = environ

    def solve(self) -> Solved:
        if self._asked.kind in (UV_LOCK, PIXI_LOCK):
            from .locked import read_locked  # noqa: PLC0415 - few projects have such a file

            python, conda, pip = read_locked(self._request, self._environ, self._cache)
        else:
            python, conda = self._interpreter()
            pip = self._pip(str(python["version"]), conda)
            files = conda_files(conda, [self._request.root, *self._request.folders])
            pip = replace(pip, files={**pip.files, **files})
        lock: JsonDict = {
            "kind": MANAGED,
            "format": FORMAT,
            "platform": self._request.platform.subdir,
            "glibc": None,
            "cuda": self._request.platform.cuda,
            "python": python,
            "conda": conda,
            "pip": list(pip.packages),
        }
        lock["glibc"] = needed_glibc(lock, self._aim)
        lock["digest"] = digest_of(lock)
        if python["source"] == "uv" and self._request.host:
            lock["instead"] = self._instead(self._request.host[1])  # no part of what it is
        return Solved(lock, pip.files)

    def _interpreter(self) -> tuple[JsonDict, list[JsonDict]]:
        """The interpreter, and conda's packages if it is one of them."""
        platform, root = self._request.platform, self._request.root
        python = choose_python(self._asked, platform, self._request.host, self._environ, root)
        if python is not None:
            return python, []
        specs = [known_words(one.text) for one in self._asked.conda]
        if not any(one.name == "python" for one in self._asked.conda):
            pin = self._asked.python
            specs.append(_conda_python(pin) if pin else f"python {DEFAULT}.*" if not specs else "python")
        asked = Asked(specs, channels_of(self._asked), platform, self._asked.file or "the project", root)
        conda = solve_conda(asked, self._cache)
        version = next(one["version"] for one in conda if one["name"] == "python")
        return {"source": "conda", "version": version}, conda

    def _instead(self, version: str) -> JsonDict:
        """The Python that is on the machine, for who cannot fetch another; and the file that asks for another."""
        file = self._asked.file or ""
        return {"version": version, "file": file if file.endswith((".yml", ".yaml")) else None}

    def _pip(self, python: str, conda: list[JsonDict]) -> Found:
        if self._asked.pip and not satisfies(python, f">={OLDEST_FOR_UV}"):
            first = self._asked.pip[0]
            raise ConfigError(
                f"cannot resolve pip packages for Python {python}: uv supports {OLDEST_FOR_UV} and newer",
                f"use python={OLDEST_FOR_UV} or newer, or conda packages",
                path=first.file,
                line=first.line,
            )
        options = [word for one in self._asked.options for word in _FLAGS.get(one.name, ())]
        for one in self._asked.options:
            if one.name in ("--no-binary", "--only-binary"):
                options += [one.name, one.value]
        wanted = Wanted(
            lines=[*(requirement(one) for one in self._asked.pip), *self._usual(python, conda)],
            platform=self._request.platform,
            python=python,
            indexes=self._indexes,
            constraints=[requirement(one) for one in self._asked.constraints],
            provided=provided(conda),
            root=self._request.root,
            file=self._asked.file or "the project",
            options=options,
            builds=self._request.builds.within(self._asked),
            cache=self._cache,
            folders=self._request.folders,
        )
        return solve_pip(wanted, self._environ)

    def _usual(self, python: str, conda: list[JsonDict]) -> list[str]:
        """conda's `pip`, where no other conda package is asked for: with it came setuptools, which old code wants."""
        if conda or not any(one.name == "pip" for one in self._asked.conda):
            return []
        return ["pip"] if satisfies(python, ">=3.12") else ["pip", "setuptools"]


def _conda_python(pin: str) -> str:
    return f"python={pin}" if pin[:1].isdigit() else f"python {pin}"


# -- what was solved before --------------------------------------------------------------------------


def _key(request: Request, indexes: Indexes, environ: Mapping[str, str]) -> str:
    """All that the answer depends on, but for time."""
    asked, platform = request.dependencies, request.platform
    said = {
        "version": _KEY_VERSION,
        "format": FORMAT,
        "kind": asked.kind,
        "python": asked.python,
        "channels": channels_of(asked),
        "conda": [one.text for one in asked.conda],
        "pip": [mask(requirement(one)) for one in (*asked.pip, *asked.constraints)],
        "options": [one.name for one in asked.options],
        "files": [_digest(request.root / one.path) for one in (*asked.pip, *asked.constraints) if one.path],
        "sources": asked.texts or [_digest(Path(path)) for path in asked.files],
        "indexes": indexes.public(request.root),
        "platform": [platform.subdir, platform.libc, platform.cuda],
        "machine": [request.machine.libc if request.machine else None, request.installer],
        "fallback": request.fallback.libc if request.fallback else None,
        "host": request.host,
        "tools": table_digest(),
        "builds": sorted(request.builds.remembered | request.builds.named),
        "folders": sorted(map(str, request.folders)),
        "uv": [mask(f"{name}={value}") for name, value in sorted(environ.items()) if name in _UV_SETTINGS],
        # The same relative path is another folder in a copy of the project, whose packages may be other ones.
        "root": os.path.realpath(request.root) if _reads_folders(request, indexes, environ) else None,
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _reads_folders(request: Request, indexes: Indexes, environ: Mapping[str, str]) -> bool:
    """Whether the project names packages of this machine, or the user names some relative to the project."""
    asked, own = request.dependencies, user_indexes(environ, request.root).places()
    settings = [environ[name] for name in ("UV_CONSTRAINT", "UV_OVERRIDE") if environ.get(name)]
    places = [place for place in indexes.places() if place not in own or not is_absolute(place)]
    channels = [*channels_of(asked), *(one.text for one in asked.conda if _CONDA_FILE.search(one.text))]
    return (
        any(not is_remote(place) for place in places)
        or any(not is_absolute(place) for place in settings)
        or any(map(is_local_channel, channels))
        or asked.kind == PIXI_LOCK
    )


def _digest(path: Path) -> str | None:
    try:
        return file_digest(path)
    except OSError:
        return None


def _recall(note: Path) -> Solved | None:
    try:
        data = parse_json(note.read_bytes())
        age = time.time() - float(data["made"])
        files = {str(key): Path(value) for key, value in data["files"].items()}
        lock = dict(data["lock"])
        fits = 0 <= age < KEPT_FOR and lock["digest"] == digest_of(lock)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # it is only a cache
    return Solved(lock, files, kept=True) if fits and all(path.is_file() for path in files.values()) else None


def _remember(note: Path, solved: Solved) -> None:
    data = {"made": time.time(), "lock": solved.lock, "files": {key: str(path) for key, path in solved.files.items()}}
    part = note.with_suffix(f".{os.urandom(4).hex()}.part")
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(data), encoding="utf-8")
        os.replace(part, note)
    except OSError:
        part.unlink(missing_ok=True)  # the next submit solves again
