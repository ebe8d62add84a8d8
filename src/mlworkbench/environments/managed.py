"""Managed environments: resolved on this machine, built by the supervisor, and shared between runs.

Runs with the same lock use the same environment.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from ..config.keys import DEFAULT_IMAGE
from ..config.project_folder import referenced_file
from ..errors import ConfigError, MlwError
from ..model import Compute, Interpreter, JsonDict
from ..remote.shared.environment_layout import digest_of, mounts, prefix_of, python_of
from ..remote.shared.program_lookup import is_in_project
from ..targets.types import Feature, is_elsewhere, type_of
from ..user_settings import read_settings
from .dependencies import DEFAULT_FILE, Dependencies
from .dependency_files import read_dependencies
from .existing import UNCHECKED, find_python, inspect_python
from .facts_access import fact
from .interpreter_choice import refresh_address
from .libc import has_sources
from .lock_check import validate_lock
from .mirrors import with_mirrors
from .package_supply import store_packages
from .pinned_tools import Installer
from .platforms import CONTAINER_GLIBC, Platform, platform_of, with_older_libc
from .selection_request import EnvironmentRequest, ResolvedEnvironment
from .solve import Request, SolveResult, add_tools, solve
from .source_builds import BuildPolicy
from .url_variables import AllowedVariables, expand_credentials

ASSUMED_CUDA = "12.9"  # for GPUs whose driver is not known; it admits packages that drivers since early 2023 support
_VERSION = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?", re.ASCII)


def managed(site: EnvironmentRequest) -> ResolvedEnvironment:
    """Resolve the environment or reuse a lock, and store packages that only this machine can provide."""
    platform = _platform(site)
    lock = _reuse_lock(site, site.locked, platform) if site.locked else _solve(site, platform)
    lock = {**lock, "python": refresh_address(lock["python"], platform, site.environ, site.root)}
    is_local = not is_elsewhere(site.compute) and not type_of(site.compute).contained
    lock = with_mirrors(_set_build_image(lock, site.compute), site.environ, site.root, is_local=is_local)
    prefix = prefix_of(site.target(), lock)
    variables = {
        "PYTHONNOUSERSITE": "1",  # packages in the user's home folder are not part of the environment
        "CONDA_PREFIX" if lock["conda"] else "VIRTUAL_ENV": prefix,
    }
    return ResolvedEnvironment(
        lock=lock,
        interpreter=Interpreter(python_of(prefix), _numbers(str(lock["python"]["version"])), _reason(site)),
        path=(os.path.dirname(python_of(prefix)),),
        variables=variables,
        mounts=tuple(mounts(site.target(), lock)),
        libc=_libc(lock) if type_of(site.compute).contained else None,
    )


def _numbers(version: str) -> tuple[int, int, int]:
    """Return the numbers in a Python version, without a prerelease suffix as in 3.14.0rc2."""
    match = _VERSION.match(version)
    if match is None:
        raise ConfigError(f"{version[:40]!r} is not a Python version", "omit --locked, or use another version")
    major, minor, micro = (int(number or 0) for number in match.groups())
    return major, minor, micro


def _set_build_image(lock: JsonDict, compute: Compute) -> JsonDict:
    """Return the lock with the image in which source packages are built and a conda Python compiles bytecode."""
    contained = type_of(compute).contained and (has_sources(lock) or lock["conda"])
    image = (compute.base_docker_image or DEFAULT_IMAGE) if contained else None
    if lock.get("built_in") == image:
        return lock
    changed = {
        **{key: value for key, value in lock.items() if key != "built_in"},
        **({"built_in": image} if image else {}),
    }
    return {**changed, "digest": digest_of(changed)}


def _libc(lock: JsonDict) -> str | None:
    return None if lock.get("glibc") == "musl" else lock.get("glibc")


def _reason(site: EnvironmentRequest) -> str:
    if site.locked:
        return "the environment of the run given with --locked"
    return f"the environment of {site.runconfig.conda_dependencies_file}"


def _platform(site: EnvironmentRequest) -> Platform:
    """Return the platform on which the run executes. Login nodes of clusters often have no GPU driver."""
    row, requested = type_of(site.compute), site.compute.nvidia_docker
    platform = platform_of(site.facts, cuda=requested if row.contained else True)
    if row.has(Feature.SCHEDULER_GPUS) and requested and platform.cuda is None:
        return replace(platform, cuda=ASSUMED_CUDA)
    return platform


def _validate_recorded_lock(lock: JsonDict, platform: Platform, *, contained: bool) -> JsonDict:
    if lock.get("kind") != "managed":
        raise ConfigError(
            f"that run used an existing Python, {lock.get('python')}, and has no environment to reproduce",
            "omit --locked",
        )
    if lock.get("platform") != platform.subdir:
        raise ConfigError(
            f"the environment of that run is for {lock.get('platform')}, but the target is {platform.subdir}",
            "omit --locked to resolve the packages for this target",
        )
    return validate_lock(lock, contained=contained)


def _reuse_lock(site: EnvironmentRequest, locked: JsonDict, platform: Platform) -> JsonDict:
    """Reuse the environment of an earlier run with the tools of this mlw version.

    The tools that the lock lists are not used, because the lock may be untrusted.
    """
    lock = _validate_recorded_lock(locked, platform, contained=type_of(site.compute).contained)
    _refuse_project_python(site, lock["python"])
    installer = Installer(platform, _installer_python(site))
    solved = add_tools(SolveResult(lock), installer, site.paths.home / "cache", site.environ, site.tell)
    store_packages(solved, Dependencies(), site.paths.root, site.environ)
    return solved.lock


def _refuse_project_python(site: EnvironmentRequest, python: JsonDict) -> None:
    """Reject a Python inside a project: only ``pythonLocation`` may select it, not a lock."""
    path = python.get("path") if python["source"] == "host" else None
    if not path or site.dry_run or is_elsewhere(site.compute) or not is_in_project(path):
        return
    host_python = _host_python(site)
    if not host_python or host_python[0] != path:
        raise ConfigError(
            f"the environment of that run uses the Python {path!r} inside a project, which is not trusted",
            "omit --locked",
        )


def _installer_python(site: EnvironmentRequest) -> str:
    return fact(site.facts, "python", "version") or "3.10"


def _solve(site: EnvironmentRequest, platform: Platform) -> JsonDict:
    settings = read_settings(site.paths)
    allowed = AllowedVariables(site.environ, settings.index_hosts)
    dependencies = expand_credentials(_read_dependencies(site), allowed)
    contained = type_of(site.compute).contained
    target_platform = with_older_libc(platform, site.image_libc() or CONTAINER_GLIBC) if contained else platform
    request = Request(
        dependencies=dependencies,
        platform=target_platform,
        root=site.root,
        machine=platform,
        host=None if contained else _host_python(site),
        installer=_installer_python(site),
        fallback=platform if contained else None,
        builds=BuildPolicy(settings.allowed_builds, site.allowed_builds, site.dry_run),
        folders=tuple(map(Path, sorted(settings.package_folders))),
    )
    solved = solve(request, site.paths.home / "cache", site.environ, refresh=site.refresh, report=site.tell)
    store_packages(solved, dependencies, site.paths.root, site.environ, site.root)
    return solved.lock


def _read_dependencies(site: EnvironmentRequest) -> Dependencies:
    path = referenced_file(site.root, site.runconfig, "CondaDependenciesFile")
    if not path.exists() and path.name == DEFAULT_FILE:
        return Dependencies(file=site.runconfig.conda_dependencies_file)  # no dependencies: a bare Python
    return read_dependencies(path, site.root)


def _host_python(site: EnvironmentRequest) -> tuple[str, str] | None:
    """Return the path and version of a usable Python on the machine.

    It is the one that scripts would use without mlw.
    """
    if is_elsewhere(site.compute):
        path, version = fact(site.facts, "python", "executable"), fact(site.facts, "python", "version")
        return (path, version) if path and version else None
    find = inspect_python if site.dry_run else find_python
    try:
        interpreter = find(site.compute.python_location, site.environ, site.root, site.paths.interpreters)
    except MlwError:
        return None
    if interpreter.version == UNCHECKED:
        site.tell(f"note: {interpreter.path} was not checked; a run may use a different Python for the environment")
        return None
    return interpreter.path, ".".join(map(str, interpreter.version))
