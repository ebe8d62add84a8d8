"""Which interpreter an environment gets: conda's, one of uv's, or the target's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from ..errors import ConfigError
from ..model import JsonDict
from ..remote.untrusted import parse_json
from .dependencies import DEFAULT_PYTHON, Dependencies
from .pip import run_uv
from .platforms import Platform

DEFAULT = DEFAULT_PYTHON
OLDEST_FOR_UV = Version("3.6")


def satisfies(version: str, pin: str | None) -> bool:
    """Whether a version is one of those that a pin means, as conda reads it: 3.6 is any 3.6."""
    if not pin:
        return True
    try:
        return any(_one(version, part.strip()) for part in pin.split("|"))
    except (InvalidSpecifier, InvalidVersion):
        raise ConfigError(f"{pin!r} is not a version of Python", "write python=3.11, or python>=3.10,<3.13") from None


def _one(version: str, part: str) -> bool:
    bare = re.fullmatch(r"={0,3}\s*(\d+(?:\.\d+)*)(?:\.\*)?", part)
    if bare:
        return f"{version}.".startswith(bare[1] + ".")
    return SpecifierSet(part.replace(" ", ",")).contains(version)


def uv_python(platform: Platform, pin: str | None, environ: Mapping[str, str], folder: Path) -> JsonDict | None:
    """The newest Python that uv can bring to a platform for a pin; None if it has none."""
    system = "linux" if platform.linux else "macos"
    words = ["python", "list", "--all-versions", "--all-platforms", "--all-arches", "--only-downloads"]
    done = run_uv(
        [*words, "--output-format", "json", "--no-config"],
        {**environ, "UV_PYTHON_DOWNLOADS": "automatic"},
        folder,
        reads_project=False,  # a mirror of the user's counts
    )
    if done.returncode:
        return None
    libc = "none" if not platform.linux else "musl" if platform.libc == "musl" else "gnu"
    machine = {"arm64": "aarch64", "ppc64le": "powerpc64le"}.get(platform.machine, platform.machine)
    wanted = {"implementation": "cpython", "variant": "default", "os": system, "arch": machine, "libc": libc}
    found = [one for one in parse_json(done.stdout) if all(one.get(key) == value for key, value in wanted.items())]
    fitting = [one for one in found if _is_final(one["version"]) and satisfies(one["version"], pin)]
    if not fitting:
        return None
    usual = [one for one in fitting if satisfies(one["version"], DEFAULT)]  # a range means many
    best = max(usual or fitting, key=lambda one: Version(one["version"]))
    return {"source": "uv", "version": best["version"], "key": best["key"], "url": best["url"]}


def _is_final(version: str) -> bool:
    return not Version(version).is_prerelease


def choose_python(
    dependencies: Dependencies,
    platform: Platform,
    host: tuple[str, str] | None,
    environ: Mapping[str, str],
    folder: Path,
) -> JsonDict | None:
    """The interpreter; None means conda's. ``host``: path and version of one of the target that may serve."""
    if dependencies.needs_conda:
        return None
    if host and satisfies(host[1], dependencies.python):
        return {"source": "host", "version": host[1], "path": host[0]}
    return uv_python(platform, dependencies.python, environ, folder)
