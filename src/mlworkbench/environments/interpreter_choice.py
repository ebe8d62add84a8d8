"""Select the interpreter of an environment: from conda, from uv, or from the target."""

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
from ..remote.shared.untrusted_json import parse_json
from .credentials import origin_of
from .dependencies import DEFAULT_PYTHON, Dependencies
from .mirrors import LIST_VARIABLE, MIRROR_VARIABLE, TIMEOUT, load_python_list, mirror_credentials, select_list_fields
from .package_sources import mask, strip_secret
from .pip_solve import run_uv
from .platforms import Platform
from .solver_messages import shorten

DEFAULT = DEFAULT_PYTHON
MIN_UV_PYTHON = Version("3.6")
_SHORT_TIMEOUT = 5.0  # seconds to wait for a mirror if an earlier response is known


def satisfies(version: str, pin: str | None) -> bool:
    """Return whether a version matches a pin in conda notation, where 3.6 matches any 3.6.x."""
    if not pin:
        return True
    try:
        return any(_matches(version, part.strip()) for part in pin.split("|"))
    except (InvalidSpecifier, InvalidVersion):
        raise ConfigError(f"{pin!r} is not a Python version", "use python=3.11, or python>=3.10,<3.13") from None


def _matches(version: str, part: str) -> bool:
    bare = re.fullmatch(r"={0,3}\s*(\d+(?:\.\d+)*)(?:\.\*)?", part)
    if bare:
        return f"{version}.".startswith(bare[1] + ".")
    return SpecifierSet(part.replace(" ", ",")).contains(version)


def find_uv_python(
    platform: Platform, pin: str | None, environ: Mapping[str, str], folder: Path, timeout: float = TIMEOUT
) -> JsonDict | None:
    """Return the newest Python for a pin that uv can install on a platform, or None if there is none.

    Raises SolveError if the user's mirror does not provide a list, because the settings do not allow
    downloads from elsewhere.
    """
    system = "linux" if platform.is_linux else "macos"
    user_list = load_python_list(environ, timeout)
    libc = "none" if not platform.is_linux else "musl" if platform.libc == "musl" else "gnu"
    machine = {"arm64": "aarch64", "ppc64le": "powerpc64le"}.get(platform.machine, platform.machine)
    filters = {"implementation": "cpython", "variant": "default", "os": system, "arch": machine, "libc": libc}
    downloads = _list_downloads(user_list, environ, folder)
    candidates = [
        download for download in downloads if all(download.get(key) == value for key, value in filters.items())
    ]
    matching = [
        download for download in candidates if _is_final(download["version"]) and satisfies(download["version"], pin)
    ]
    if not matching:
        return None
    preferred = [
        download for download in matching if satisfies(download["version"], DEFAULT)
    ]  # prefer the default version if a range allows it
    best = max(preferred or matching, key=lambda download: Version(download["version"]))
    url, private = strip_secret(best["url"])
    python = {"source": "uv", "version": best["version"], "key": best["key"], "url": url}
    if private or origin_of(url) in mirror_credentials(environ):
        python["private"] = True
    if best["key"] in user_list:
        python["listed"] = select_list_fields(user_list[best["key"]])
    return python


def _list_downloads(
    user_list: Mapping[str, JsonDict], environ: Mapping[str, str], folder: Path
) -> Sequence[Mapping[str, Any]]:
    """Return the Python versions that uv can download. ``user_list`` comes from the user's settings."""
    arguments = ["python", "list", "--all-versions", "--all-platforms", "--all-arches", "--only-downloads"]
    with tempfile.TemporaryDirectory(prefix="mlw-pythons-") as temporary:
        settings = {**environ, "UV_PYTHON_DOWNLOADS": "automatic"}
        if user_list:
            settings[LIST_VARIABLE] = str(Path(temporary) / "list.json")
            Path(settings[LIST_VARIABLE]).write_text(json.dumps(user_list), encoding="utf-8")
        result = run_uv(
            [*arguments, "--output-format", "json", "--no-config"],
            settings,
            folder,
            reads_project=False,  # so that the user's mirror settings apply
        )
    if result.returncode:
        problem = f"uv failed to list its Python versions:\n{shorten(mask(result.stderr.strip()))}"
        raise SolveError(
            problem,
            f"check {LIST_VARIABLE} and {MIRROR_VARIABLE}" if user_list or environ.get(MIRROR_VARIABLE) else None,
        )
    answer: Sequence[Mapping[str, Any]] = parse_json(result.stdout)
    return answer


def refresh_address(python: JsonDict, platform: Platform, environ: Mapping[str, str], folder: Path) -> JsonDict:
    """Return the Python of a lock with its URL updated from the user's current settings.

    A mirror may have moved the file. If the mirror does not respond, the URL stays unchanged. The URL is
    not part of the environment's identity.
    """
    if python["source"] != "uv" or not (environ.get(LIST_VARIABLE) or environ.get(MIRROR_VARIABLE)):
        return python
    try:
        current = find_uv_python(platform, str(python["version"]), environ, folder, _SHORT_TIMEOUT)
    except SolveError:
        return python
    return current if current and current["key"] == python["key"] else python


def _is_final(version: str) -> bool:
    return not Version(version).is_prerelease


def choose_python(
    dependencies: Dependencies,
    platform: Platform,
    host: tuple[str, str] | None,
    environ: Mapping[str, str],
    folder: Path,
) -> JsonDict | None:
    """Return the interpreter, or None if it comes from conda.

    ``host`` is the path and version of a usable Python on the target.
    """
    if dependencies.needs_conda:
        return None
    if host and satisfies(host[1], dependencies.python):
        return {"source": "host", "version": host[1], "path": host[0]}
    return find_uv_python(platform, dependencies.python, environ, folder)
