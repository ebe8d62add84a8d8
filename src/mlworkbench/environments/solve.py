"""Resolve a project's dependencies for a target's platform to a lock with exact packages and digests.

Resolution runs on the user's machine for every target, and results are cached for a week. A lock
contains no secrets: passwords and tokens are removed from URLs, and such packages are marked
``private``.
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
from ..remote.shared.untrusted_json import parse_json
from .conda_solve import CondaRequest, installed_for_pip, solve_conda
from .dependencies import PIXI_LOCK, UV_LOCK, Dependencies
from .index_variables import SecretVariables
from .interpreter_choice import DEFAULT, MIN_UV_PYTHON, choose_python, satisfies
from .libc import has_sources, required_glibc
from .local_files import check_sources, conda_files
from .local_files import digest_of as file_digest
from .package_sources import (
    Indexes,
    channels_of,
    indexes_of,
    is_absolute,
    is_local_channel,
    is_remote,
    mask,
    normalize_channel,
    user_indexes,
)
from .pinned_tools import Installer, find_tools, table_digest
from .pip_solve import PipRequest, PipResult, format_requirement, solve_pip
from .platforms import Platform
from .source_builds import BuildPolicy

CACHE_LIFETIME = 7 * 24 * 3600.0
_KEY_VERSION = 2  # version 1 may have cached locks of uv workspaces above the project
# The user's uv settings that affect the result.
_UV_SETTINGS = (
    *("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("UV_INDEX_STRATEGY", "UV_PRERELEASE", "UV_RESOLUTION", "UV_EXCLUDE_NEWER", "UV_TORCH_BACKEND"),
    *("UV_NO_BUILD", "UV_NO_BINARY", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_PYTHON_DOWNLOADS_JSON_URL"),
    "UV_PYTHON_INSTALL_MIRROR",
)
_CONDA_FILE = re.compile(r"\.(?:conda|tar\.bz2)\b")  # URL of a package file
_FLAGS = {"--pre": ["--prerelease", "allow"]}


@dataclass(frozen=True)
class Request:
    """A request to resolve dependencies.

    Packages run on ``platform`` and are installed on ``machine``: an image may have an older C library
    than its host.
    """

    dependencies: Dependencies
    platform: Platform
    root: Path  # project folder
    machine: Platform | None = None
    host: tuple[str, str] | None = None  # path and version of a usable Python on the target
    installer: str = "3.10"  # Python version that runs mlw on the target; py-rattler must support it
    fallback: Platform | None = None  # the actual machine if ``platform`` is only preferred
    builds: BuildPolicy = BuildPolicy()
    folders: tuple[Path, ...] = ()  # allowed folders outside the project


@dataclass(frozen=True)
class SolveResult:
    """A lock and the local files that it refers to, as digest → path. mlw uploads these files."""

    lock: JsonDict
    files: Mapping[str, Path] = field(default_factory=dict)
    cached: bool = False  # from a previous call


def solve(
    request: Request,
    cache: Path,
    environ: Mapping[str, str],
    *,
    refresh: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> SolveResult:
    """Return the lock for a request. SolveError includes the resolver's explanation.

    ``report`` is called with progress messages.
    """
    check_sources(request.dependencies, request.root, request.folders)
    indexes = indexes_of(request.dependencies, environ, request.root)
    cache_file = cache / "locks" / f"{_cache_key(request, indexes, environ)}.json"
    cached = None if refresh else _load_cached(cache_file)
    if cached:
        # Earlier versions may have cached secrets.
        return replace(cached, lock=SecretVariables.from_environ(environ).hide_in_lock(cached.lock))
    report(f"resolving the packages of {request.dependencies.file or 'the project'} for {request.platform.subdir}")
    result = _solve(request, indexes, cache, environ)
    installer = Installer(request.machine or request.platform, request.installer)
    result = add_tools(result, installer, cache, environ, report)
    if _is_complete(result):
        _save_cached(cache_file, result)
    return result


def _is_complete(result: SolveResult) -> bool:
    """Return whether every tool in the lock has a URL or a local file.

    An incomplete result is not cached, because the package index may have the missing tools later.
    """
    return all(tool.get("url") or str(tool["sha256"]) in result.files for tool in result.lock["tools"])


def add_tools(
    result: SolveResult, installer: Installer, cache: Path, environ: Mapping[str, str], report: Callable[[str], None]
) -> SolveResult:
    """Add the tools that build the environment, replacing any in the lock.

    Tools are not included in the lock's digest.
    """
    conda = bool(result.lock["conda"])
    tools, files = find_tools(installer, conda=conda, cache=cache, environ=environ, report=report)
    lock = SecretVariables.from_environ(environ).hide_in_lock({**result.lock, "tools": tools})
    return replace(result, lock=lock, files={**result.files, **files})


def _solve(request: Request, indexes: Indexes, cache: Path, environ: Mapping[str, str]) -> SolveResult:
    """Resolve for the preferred platform, else for the actual machine.

    The actual machine is used if the first attempt fails or requires source builds.
    """
    if request.fallback is None or request.fallback.libc == request.platform.libc:
        return _Solver(request, indexes, cache, environ).solve()
    preferred = None
    try:
        preferred = _Solver(request, indexes, cache, environ).solve()
        if not has_sources(preferred.lock):
            return preferred
    except NotFetched:
        raise  # the index would not respond for the actual machine either
    except SolveError:
        pass  # the error for the actual machine is more useful
    try:
        fallback = _Solver(
            replace(request, platform=request.fallback), indexes, cache, environ, request.platform
        ).solve()
    except SolveError:
        if preferred is None:
            raise
        return preferred
    return preferred if preferred and has_sources(fallback.lock) else fallback


class _Solver:
    """A resolver for one request and one platform."""

    def __init__(
        self,
        request: Request,
        indexes: Indexes,
        cache: Path,
        environ: Mapping[str, str],
        libc_platform: Platform | None = None,  # for packages that do not specify a C library
    ) -> None:
        self._request = request
        self._libc_platform = libc_platform or request.platform
        self._dependencies = request.dependencies
        self._indexes = indexes
        self._cache = cache
        self._environ = environ

    def solve(self) -> SolveResult:
        if self._dependencies.kind in (UV_LOCK, PIXI_LOCK):
            from .project_locks import read_locked  # noqa: PLC0415 - few projects have such a file

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
        lock["glibc"] = required_glibc(lock, self._libc_platform)
        lock["digest"] = digest_of(lock)
        if python["source"] == "uv" and self._request.host:
            lock["instead"] = self._alternative_python(self._request.host[1])  # not included in the digest
        return SolveResult(lock, pip.files)

    def _interpreter(self) -> tuple[JsonDict, list[JsonDict]]:
        """Return the interpreter, and the conda packages if the interpreter comes from conda."""
        platform, root = self._request.platform, self._request.root
        python = choose_python(self._dependencies, platform, self._request.host, self._environ, root)
        if python is not None:
            return python, []
        specs = [normalize_channel(package.text) for package in self._dependencies.conda]
        if not any(package.name == "python" for package in self._dependencies.conda):
            pin = self._dependencies.python
            specs.append(_conda_python(pin) if pin else f"python {DEFAULT}.*" if not specs else "python")
        request = CondaRequest(
            specs, channels_of(self._dependencies), platform, self._dependencies.file or "the project", root
        )
        conda = solve_conda(request, self._cache)
        version = next(package["version"] for package in conda if package["name"] == "python")
        return {"source": "conda", "version": version}, conda

    def _alternative_python(self, version: str) -> JsonDict:
        """Return the machine's Python version, and the file to edit to use it without a download."""
        file = self._dependencies.file or ""
        return {"version": version, "file": file if file.endswith((".yml", ".yaml")) else None}

    def _pip(self, python: str, conda: list[JsonDict]) -> PipResult:
        if self._dependencies.pip and not satisfies(python, f">={MIN_UV_PYTHON}"):
            first = self._dependencies.pip[0]
            raise ConfigError(
                f"cannot resolve pip packages for Python {python}: uv supports {MIN_UV_PYTHON} and newer",
                f"use python={MIN_UV_PYTHON} or newer, or conda packages",
                path=first.file,
                line=first.line,
            )
        options = [argument for line in self._dependencies.options for argument in _FLAGS.get(line.name, ())]
        for line in self._dependencies.options:
            if line.name in ("--no-binary", "--only-binary"):
                options += [line.name, line.value]
        request = PipRequest(
            lines=[
                *(format_requirement(line) for line in self._dependencies.pip),
                *self._default_packages(python, conda),
            ],
            platform=self._request.platform,
            python=python,
            indexes=self._indexes,
            constraints=[format_requirement(line) for line in self._dependencies.constraints],
            provided=installed_for_pip(conda),
            root=self._request.root,
            file=self._dependencies.file or "the project",
            options=options,
            builds=self._request.builds.for_project(self._dependencies),
            cache=self._cache,
            folders=self._request.folders,
        )
        return solve_pip(request, self._environ)

    def _default_packages(self, python: str, conda: list[JsonDict]) -> list[str]:
        """Return the packages to install if the project lists conda's `pip` but no other conda packages.

        conda's `pip` included setuptools, which old code needs.
        """
        if conda or not any(package.name == "pip" for package in self._dependencies.conda):
            return []
        return ["pip"] if satisfies(python, ">=3.12") else ["pip", "setuptools"]


def _conda_python(pin: str) -> str:
    return f"python={pin}" if pin[:1].isdigit() else f"python {pin}"


# -- cache of results --------------------------------------------------------------------------------


def _cache_key(request: Request, indexes: Indexes, environ: Mapping[str, str]) -> str:
    """Return a digest of everything that the result depends on, except the time."""
    dependencies, platform = request.dependencies, request.platform
    parts = {
        "version": _KEY_VERSION,
        "format": FORMAT,
        "kind": dependencies.kind,
        "python": dependencies.python,
        "channels": channels_of(dependencies),
        "conda": [entry.text for entry in dependencies.conda],
        "pip": [mask(format_requirement(entry)) for entry in (*dependencies.pip, *dependencies.constraints)],
        "options": [entry.name for entry in dependencies.options],
        "files": [
            _digest(request.root / entry.path) for entry in (*dependencies.pip, *dependencies.constraints) if entry.path
        ],
        "sources": dependencies.texts or [_digest(Path(path)) for path in dependencies.files],
        "indexes": indexes.fingerprint(request.root),
        "platform": [platform.subdir, platform.libc, platform.cuda],
        "machine": [request.machine.libc if request.machine else None, request.installer],
        "fallback": request.fallback.libc if request.fallback else None,
        "host": request.host,
        "tools": table_digest(),
        "builds": sorted(request.builds.from_settings | request.builds.named),
        "folders": sorted(map(str, request.folders)),
        "uv": [mask(f"{name}={value}") for name, value in sorted(environ.items()) if name in _UV_SETTINGS],
        # In a copy of the project, the same relative path is a different folder, possibly with other packages.
        "root": os.path.realpath(request.root) if _uses_local_folders(request, indexes, environ) else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _uses_local_folders(request: Request, indexes: Indexes, environ: Mapping[str, str]) -> bool:
    """Return whether the result depends on local packages.

    The project may list local sources, or the user's settings may contain paths relative to the project.
    """
    dependencies, user_addresses = request.dependencies, user_indexes(environ, request.root).addresses()
    settings = [environ[name] for name in ("UV_CONSTRAINT", "UV_OVERRIDE") if environ.get(name)]
    addresses = [
        address for address in indexes.addresses() if address not in user_addresses or not is_absolute(address)
    ]
    channels = [
        *channels_of(dependencies),
        *(package.text for package in dependencies.conda if _CONDA_FILE.search(package.text)),
    ]
    return (
        any(not is_remote(address) for address in addresses)
        or any(not is_absolute(address) for address in settings)
        or any(map(is_local_channel, channels))
        or dependencies.kind == PIXI_LOCK
    )


def _digest(path: Path) -> str | None:
    try:
        return file_digest(path)
    except OSError:
        return None


def _load_cached(cache_file: Path) -> SolveResult | None:
    try:
        data = parse_json(cache_file.read_bytes())
        age = time.time() - float(data["made"])
        files = {str(key): Path(value) for key, value in data["files"].items()}
        lock = dict(data["lock"])
        is_valid = 0 <= age < CACHE_LIFETIME and lock["digest"] == digest_of(lock)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # the cache is optional
    return (
        SolveResult(lock, files, cached=True) if is_valid and all(path.is_file() for path in files.values()) else None
    )


def _save_cached(cache_file: Path, result: SolveResult) -> None:
    data = {"made": time.time(), "lock": result.lock, "files": {key: str(path) for key, path in result.files.items()}}
    temporary = cache_file.with_suffix(f".{os.urandom(4).hex()}.part")
    try:
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(data), encoding="utf-8")
        os.replace(temporary, cache_file)
    except OSError:
        temporary.unlink(missing_ok=True)  # the next submit resolves again
