"""The environment that we make: solved here for the target, built there by the supervisor, shared by runs alike."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..config.keys import DEFAULT_IMAGE
from ..config.project import named_file
from ..errors import ConfigError, MlwError
from ..model import Compute, Interpreter, JsonDict
from ..remote.shared.environment_layout import digest_of, mounts, prefix_of, python_of
from ..remote.shared.programs import in_project
from ..settings import read_settings
from ..targets.types import is_elsewhere, type_of
from .dependencies import USUAL_FILE, Dependencies
from .dependency_files import read_dependencies
from .existing import UNTRIED, find_python, look_at_python
from .known import fact
from .libc import has_sources
from .lock_check import checked_lock
from .mirrors import with_mirrors
from .pinned_tools import Installer
from .platforms import CONTAINER_GLIBC, Platform, older_libc, platform_of
from .pythons import current_address
from .site import Settled, Site
from .solve import Request, Solved, solve, with_tools
from .sources import Builds
from .supply import stock
from .variables import Allowed, expand_credentials

_VERSION = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?", re.ASCII)


def managed(site: Site) -> Settled:
    """Solve it, or recall what was solved; what only this machine has of it is put in stock."""
    platform = platform_of(site.facts, cuda=_sees_gpus(site))
    lock = _repeat(site, site.locked, platform) if site.locked else _solve(site, platform)
    lock = {**lock, "python": current_address(lock["python"], platform, site.environ, site.root)}
    here = not is_elsewhere(site.compute) and not type_of(site.compute).contained
    lock = with_mirrors(_build_place(lock, site.compute), site.environ, site.root, here=here)
    prefix = prefix_of(site.target(), lock)
    variables = {
        "PYTHONNOUSERSITE": "1",  # what lies in the user's home there is no part of it
        "CONDA_PREFIX" if lock["conda"] else "VIRTUAL_ENV": prefix,
    }
    return Settled(
        lock=lock,
        interpreter=Interpreter(python_of(prefix), _numbers(str(lock["python"]["version"])), _why(site)),
        path=(os.path.dirname(python_of(prefix)),),
        variables=variables,
        mounts=tuple(mounts(site.target(), lock)),
        libc=_libc(lock) if type_of(site.compute).contained else None,
    )


def _numbers(version: str) -> tuple[int, int, int]:
    """The numbers of a Python version without the suffix of a pre-release, as in 3.14.0rc2."""
    match = _VERSION.match(version)
    if match is None:
        raise ConfigError(f"{version[:40]!r} is not a Python version", "omit --locked, or use another version")
    major, minor, micro = (int(number or 0) for number in match.groups())
    return major, minor, micro


def _build_place(lock: JsonDict, compute: Compute) -> JsonDict:
    """Where source packages and a conda Python run: in the image of the run if it has one, else on the target."""
    contained = type_of(compute).contained and (has_sources(lock) or lock["conda"])
    image = (compute.base_docker_image or DEFAULT_IMAGE) if contained else None
    if lock.get("built_in") == image:
        return lock
    placed = {
        **{key: value for key, value in lock.items() if key != "built_in"},
        **({"built_in": image} if image else {}),
    }
    return {**placed, "digest": digest_of(placed)}


def _libc(lock: JsonDict) -> str | None:
    return None if lock.get("glibc") == "musl" else lock.get("glibc")


def _why(site: Site) -> str:
    if site.locked:
        return "the environment of the run given with --locked"
    return f"the environment of {site.runconfig.conda_dependencies_file}"


def _sees_gpus(site: Site) -> bool:
    return site.compute.nvidia_docker if type_of(site.compute).contained else True


def _locked(lock: JsonDict, platform: Platform, *, contained: bool) -> JsonDict:
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
    return checked_lock(lock, contained=contained)


def _repeat(site: Site, locked: JsonDict, platform: Platform) -> JsonDict:
    """The environment of an earlier run, but with the tools of this version: a lock may come from anywhere."""
    lock = _locked(locked, platform, contained=type_of(site.compute).contained)
    _refuse_program(site, lock["python"])
    where = Installer(platform, _installer(site))
    solved = with_tools(Solved(lock), where, site.paths.home / "cache", site.environ, site.tell)
    stock(solved, Dependencies(), site.paths.root, site.environ)
    return solved.lock


def _refuse_program(site: Site, python: JsonDict) -> None:
    """What lies in a project is data: a lock cannot name it as a program for this machine, only pythonLocation can."""
    path = python.get("path") if python["source"] == "host" else None
    if not path or site.dry_run or is_elsewhere(site.compute) or not in_project(path):
        return
    found = _host_python(site)
    if not found or found[0] != path:
        raise ConfigError(
            f"the environment of that run uses the Python {path!r} inside a project, which is not trusted",
            "omit --locked",
        )


def _installer(site: Site) -> str:
    return fact(site.facts, "python", "version") or "3.10"


def _solve(site: Site, platform: Platform) -> JsonDict:
    settings = read_settings(site.paths)
    allowed = Allowed(site.environ, settings.index_hosts)
    dependencies = expand_credentials(_dependencies(site), allowed)
    contained = type_of(site.compute).contained
    aim = older_libc(platform, site.image_libc() or CONTAINER_GLIBC) if contained else platform
    request = Request(
        dependencies=dependencies,
        platform=aim,
        root=site.root,
        machine=platform,
        host=None if contained else _host_python(site),
        installer=_installer(site),
        fallback=platform if contained else None,
        builds=Builds(settings.allowed_builds, site.allowed_builds, site.dry_run),
        folders=tuple(map(Path, sorted(settings.package_folders))),
    )
    solved = solve(request, site.paths.home / "cache", site.environ, refresh=site.refresh, tell=site.tell)
    stock(solved, dependencies, site.paths.root, site.environ, site.root)
    return solved.lock


def _dependencies(site: Site) -> Dependencies:
    path = named_file(site.root, site.runconfig, "CondaDependenciesFile")
    if not path.exists() and path.name == USUAL_FILE:
        return Dependencies(file=site.runconfig.conda_dependencies_file)  # nothing is asked for: a bare Python
    return read_dependencies(path, site.root)


def _host_python(site: Site) -> tuple[str, str] | None:
    """A Python of the machine's own that may serve: the one that scripts would get without us."""
    if is_elsewhere(site.compute):
        path, version = fact(site.facts, "python", "executable"), fact(site.facts, "python", "version")
        return (path, version) if path and version else None
    find = look_at_python if site.dry_run else find_python
    try:
        found = find(site.compute.python_location, site.environ, site.root, site.paths.interpreters)
    except MlwError:
        return None
    if found.version == UNTRIED:
        site.tell(f"note: {found.path} was not checked; a run may use a different Python for the environment")
        return None
    return found.path, ".".join(map(str, found.version))
