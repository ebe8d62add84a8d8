"""Which interpreter an environment gets: conda's, one of uv's, or the target's own."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from ..errors import ConfigError, SolveError
from ..model import JsonDict
from ..remote.shared.untrusted import parse_json
from .channels import mask, without_secret
from .credentials import origin_of
from .dependencies import DEFAULT_PYTHON, Dependencies
from .mirrors import LIST, MIRROR, PATIENCE, listed, mirror_credentials, python_list
from .pip import run_uv
from .platforms import Platform
from .words import shorten

DEFAULT = DEFAULT_PYTHON
OLDEST_FOR_UV = Version("3.6")
_QUICK = 5.0  # seconds for a mirror to answer where its last answer is known


def satisfies(version: str, pin: str | None) -> bool:
    """Whether a version is one of those that a pin means, as conda reads it: 3.6 is any 3.6."""
    if not pin:
        return True
    try:
        return any(_one(version, part.strip()) for part in pin.split("|"))
    except (InvalidSpecifier, InvalidVersion):
        raise ConfigError(f"{pin!r} is not a Python version", "use python=3.11, or python>=3.10,<3.13") from None


def _one(version: str, part: str) -> bool:
    bare = re.fullmatch(r"={0,3}\s*(\d+(?:\.\d+)*)(?:\.\*)?", part)
    if bare:
        return f"{version}.".startswith(bare[1] + ".")
    return SpecifierSet(part.replace(" ", ",")).contains(version)


def uv_python(
    platform: Platform, pin: str | None, environ: Mapping[str, str], folder: Path, patience: float = PATIENCE
) -> JsonDict | None:
    """The newest Python that uv can bring to a platform for a pin; None if it has none.

    Raises SolveError if the user's mirror has no list: a Python from elsewhere is not what the settings ask for.
    """
    system = "linux" if platform.linux else "macos"
    own = python_list(environ, patience)
    libc = "none" if not platform.linux else "musl" if platform.libc == "musl" else "gnu"
    machine = {"arm64": "aarch64", "ppc64le": "powerpc64le"}.get(platform.machine, platform.machine)
    wanted = {"implementation": "cpython", "variant": "default", "os": system, "arch": machine, "libc": libc}
    known = _downloads(own, environ, folder)
    found = [one for one in known if all(one.get(key) == value for key, value in wanted.items())]
    fitting = [one for one in found if _is_final(one["version"]) and satisfies(one["version"], pin)]
    if not fitting:
        return None
    usual = [one for one in fitting if satisfies(one["version"], DEFAULT)]  # a range means many
    best = max(usual or fitting, key=lambda one: Version(one["version"]))
    url, private = without_secret(best["url"])
    python = {"source": "uv", "version": best["version"], "key": best["key"], "url": url}
    if private or origin_of(url) in mirror_credentials(environ):
        python["private"] = True
    if best["key"] in own:
        python["listed"] = listed(own[best["key"]])
    return python


def _downloads(own: Mapping[str, JsonDict], environ: Mapping[str, str], folder: Path) -> Sequence[Mapping[str, Any]]:
    """What uv could download. ``own``: the list of the user's settings, which is fetched already."""
    words = ["python", "list", "--all-versions", "--all-platforms", "--all-arches", "--only-downloads"]
    with tempfile.TemporaryDirectory(prefix="mlw-pythons-") as place:
        settings = {**environ, "UV_PYTHON_DOWNLOADS": "automatic"}
        if own:
            settings[LIST] = str(Path(place) / "list.json")
            Path(settings[LIST]).write_text(json.dumps(own), encoding="utf-8")
        done = run_uv(
            [*words, "--output-format", "json", "--no-config"],
            settings,
            folder,
            reads_project=False,  # a mirror of the user's counts
        )
    if done.returncode:
        problem = f"uv failed to list its Python versions:\n{shorten(mask(done.stderr.strip()))}"
        raise SolveError(problem, f"check {LIST} and {MIRROR}" if own or environ.get(MIRROR) else None)
    answer: Sequence[Mapping[str, Any]] = parse_json(done.stdout)
    return answer


def current_address(python: JsonDict, platform: Platform, environ: Mapping[str, str], folder: Path) -> JsonDict:
    """The Python of a lock with the address that the user's settings give it now: a mirror may have moved it.

    No part of what the environment is. Where the mirror does not answer, the address stays as it was.
    """
    if python["source"] != "uv" or not (environ.get(LIST) or environ.get(MIRROR)):
        return python
    try:
        found = uv_python(platform, str(python["version"]), environ, folder, _QUICK)
    except SolveError:
        return python
    return found if found and found["key"] == python["key"] else python


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
