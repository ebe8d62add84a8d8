"""Export the packages in a ``uv.lock`` with uv, using only the text of the project's own two files.

uv searches all folders above a project for a workspace and then reads the lock file of that
workspace. Such a folder may belong to another user, or to a repository that contains the project as
a subfolder. Therefore uv gets a private copy of the files in a folder outside any workspace, and
every package that it prints must be in the project's lock file.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from ..errors import ConfigError, SolveError
from .package_sources import mask
from .pip_solve import run_uv
from .requirement import normalize_name
from .solver_messages import shorten

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PACKAGE = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[\w., -]*\])?\s*"
    r"(?:==(?P<version>[^\s;]+)|@ (?!\S*file:)(?P<address>\S+))"
)
_HASH = re.compile(r"(?<=--hash=)\S+")
# The search for a workspace ends at the first pyproject.toml above the project.
_BOUNDARY = "[tool.uv.workspace]\nmembers = []\n"
_LOCK_AGAIN = "recreate it with 'uv lock'"


def export_lock(texts: Sequence[str], environ: Mapping[str, str], file: str) -> list[str]:
    """Return requirement lines with exact versions and hashes.

    ``texts`` contains the contents of ``uv.lock`` and ``pyproject.toml``.
    """
    lock, project = texts
    arguments = ["export", "--frozen", "--offline", "--no-emit-workspace", "--no-header", "--no-annotate", "--quiet"]
    arguments += ["--no-config"]  # otherwise a project could set the cache folder
    with tempfile.TemporaryDirectory(prefix="mlw-export-") as private:
        folder = Path(private, "project")
        folder.mkdir()
        Path(private, "pyproject.toml").write_text(_BOUNDARY, encoding="utf-8")
        Path(folder, "pyproject.toml").write_text(project, encoding="utf-8")
        Path(folder, "uv.lock").write_text(lock, encoding="utf-8")
        settings = {**environ, "UV_PYTHON_DOWNLOADS": "never"}
        result = run_uv([*arguments, "--project", str(folder)], settings, folder)
    if result.returncode:
        message = mask(result.stderr).replace(f"{folder}/", "").removeprefix("error: ")
        raise SolveError(f"uv cannot read {file}:\n{shorten(message)}", _LOCK_AGAIN)
    lines = [line for line in result.stdout.replace("\\\n", " ").splitlines() if line.strip()]
    locked = _locked_packages(lock)
    for line in lines:
        _check(line, locked, file)
    return lines


def _locked_packages(lock: str) -> dict[str, list[dict[str, Any]]]:
    """Return the packages in a lock file by normalized name. A name may have several versions."""
    packages: dict[str, list[dict[str, Any]]] = {}
    for package in tomllib.loads(lock).get("package", ()):
        packages.setdefault(normalize_name(str(package.get("name"))), []).append(package)
    return packages


def _check(line: str, locked: Mapping[str, list[dict[str, Any]]], file: str) -> None:
    """Raise ConfigError unless the line is a package in the lock file."""
    if line.startswith(("-e ", "./", "../")):
        raise ConfigError("workspace packages from folders are not supported", "build a wheel", path=file)
    package = _PACKAGE.match(line)
    if package is None:
        raise ConfigError(f"{mask(line[:200])!r} is not a package", _LOCK_AGAIN, path=file)
    hashes = set(_HASH.findall(line))
    if not any(_is_locked(package, hashes, entry) for entry in locked.get(normalize_name(package["name"]), ())):
        problem = f"uv exports {mask(package[0].strip())[:200]}, which is not in this lock file"
        raise ConfigError(problem, _LOCK_AGAIN, path=file)


def _is_locked(package: re.Match[str], hashes: set[str], locked: Mapping[str, Any]) -> bool:
    files = [*locked.get("wheels", ()), *([locked["sdist"]] if "sdist" in locked else ())]
    if not hashes <= {file.get("hash") for file in files}:
        return False
    source = locked.get("source", {})
    if package["address"]:
        return _split_subdirectory(package["address"]) in _sources(source)
    return "registry" in source and package["version"] == locked.get("version")


def _split_subdirectory(address: str) -> tuple[str, str]:
    """Return the URL without its fragment, and the subdirectory that the fragment specifies."""
    url, _, fragment = address.partition("#")
    return url, dict(parse_qsl(fragment)).get("subdirectory", "")


def _sources(source: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return [(URL, subdirectory)] for a package that is not from an index, otherwise an empty list."""
    if "url" in source:
        return [(source["url"], source.get("subdirectory", ""))]
    url, _, commit = str(source.get("git", "")).rpartition("#")
    repository, _, query = url.partition("?")
    return [(f"git+{repository}@{commit}", dict(parse_qsl(query)).get("subdirectory", ""))] if repository else []
