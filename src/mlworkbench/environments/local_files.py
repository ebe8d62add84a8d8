"""Files of this machine among resolved packages: only those of the project, or of folders that the user names.

An index answers with addresses of its choice, and a package may depend on any address: ``file:`` and ``git+file:``
would bring files of the user into an environment that the project's code can read. So would a folder that the project
names as a source of packages: outside the project it must be below one that the user allows for all projects (``mlw
settings add package-folders``).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ..errors import ConfigError, SolveError
from .channels import channels_of, is_local_channel, is_remote
from .dependencies import Dependencies, Line

ARCHIVES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz", ".tar.xz")
_OF_CONDA = (".conda", ".tar.bz2")
_SOURCES = ("--index-url", "--extra-index-url", "--find-links")
_REPOSITORIES = ("https", "ssh", "http", "git")
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")


def local_path(file: Mapping[str, Any], root: Path) -> Path | None:
    """The path of a resolved file that is on this machine."""
    if "path" in file:
        return root / str(file["path"])
    parts = urlsplit(str(file.get("url", "")))
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def folders_of(places: Iterable[str], root: Path) -> list[Path]:
    """The folders of this machine among addresses of indexes and links; a path may be relative to ``root``."""
    parts = [(place, urlsplit(place)) for place in places if place]
    local = [(place, part) for place, part in parts if part.scheme == "file" or "://" not in place]
    return [root / (url2pathname(part.path) if part.scheme == "file" else place) for place, part in local]


def check_sources(dependencies: Dependencies, root: Path, allowed: Iterable[Path]) -> None:
    """Raise ConfigError for a folder that the project names as a source of packages, unless packages of it may be used.

    ``allowed``: folders outside the project that the user allows.
    """
    whole = Line("", dependencies.file, 0)
    sources: list[tuple[Line, str]] = [
        (one, one.value)
        for one in dependencies.options
        if one.name in _SOURCES and one.value and not is_remote(one.value)
    ]
    sources += [(whole, channel) for channel in channels_of(dependencies) if is_local_channel(channel)]
    borders = [root.resolve(), *(folder.resolve() for folder in allowed)]
    for at, place in sources:
        path = _path_of(place, root)
        if not any(path.resolve().is_relative_to(border) for border in borders):
            allow = f"to allow all projects to install packages from it, run: mlw settings add package-folders {path}"
            raise ConfigError(
                f"{place[:200]} is outside the project, and packages from it are not allowed",
                "copy the packages into the project" if path == path.parent else allow,
                path=at.file,
                line=at.line or None,
            )


def _path_of(place: str, root: Path) -> Path:
    """The folder that an address or a path means; a path may be relative to the project."""
    scheme, _, rest = place.partition(":")
    if scheme.lower() == "file":
        return root / url2pathname(urlsplit(rest).path)
    return root / os.path.expanduser(place)


def conda_files(conda: Iterable[dict[str, Any]], folders: Iterable[Path]) -> dict[str, Path]:
    """Packages of channels on this machine, digest → path. The path leaves the lock: it concerns no other machine.

    Their content gives the digest where the channel has none: old ones have MD5 only.
    """
    folders, found = list(folders), {}
    local = [(one, Path(url2pathname(urlsplit(str(one.pop("here"))).path))) for one in conda if "here" in one]
    for one, path in local:
        real = allowed_file(str(one["name"]), path, folders)
        one["sha256"] = one["sha256"] or digest_of(real)
        found[one["sha256"]] = real
    return found


def digest_of(path: Path) -> str:
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
    return sha256.hexdigest()


def allowed_file(name: str, path: Path, folders: Iterable[Path]) -> Path:
    """The path without links; SolveError unless it is a package in one of the folders."""
    real = path.resolve()
    if not real.name.lower().endswith((*ARCHIVES, *_OF_CONDA)) or not real.is_file():
        raise SolveError(f"{name} resolves to {path}, which is not a package", "use another index or version")
    if not any(real.is_relative_to(folder.resolve()) for folder in folders):
        raise SolveError(
            f"{name} resolves to {path}, a local file outside the project",
            "copy it into the project and reference it there, or allow its folder for all projects:"
            f" mlw settings add package-folders {real.parent}",
        )
    return real


def is_open_repository(url: str) -> bool:
    """Whether git connects without encryption: it would send passwords of ``.netrc`` in plain text."""
    found = re.match(r"(?:git\+(?:http|git)|http|git)://(?:[^/@]*@)?(\[[^]]*\]|[^/:]*)", url, re.IGNORECASE)
    return found is not None and found.group(1).lower() not in _LOOPBACK


def check_repository(name: str, url: str) -> None:
    """Raise SolveError for a repository of this machine, or one that is reached without encryption."""
    parts = urlsplit(url)
    scheme = parts.scheme.removeprefix("git+").lower()
    hint = "use a repository URL with https or ssh, or build a wheel"
    if scheme not in _REPOSITORIES:
        raise SolveError(f"{name} resolves to {url[:200]!r}, which is not a repository on a server", hint)
    if is_open_repository(url):
        raise SolveError(f"{name} resolves to {url[:200]}, which uses an unencrypted connection", hint)
