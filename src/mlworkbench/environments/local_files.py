"""Files of this machine among resolved packages: only those of the project, or of folders that the user or it names.

An index answers with addresses of its choice, and a package may depend on any address: ``file:`` and ``git+file:``
would bring files of the user into an environment that the project's code can read.
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

from ..errors import SolveError
from .channels import is_local_channel

ARCHIVES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz", ".tar.xz")
_OF_CONDA = (".conda", ".tar.bz2")
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


def channel_folders(channels: Iterable[str], root: Path) -> list[Path]:
    """The folders of this machine among conda channels; a path may be relative to the project."""
    local = [channel for channel in channels if is_local_channel(channel)]
    addresses = [(channel, urlsplit(channel)) for channel in local]
    paths = [url2pathname(part.path) if part.scheme == "file" else channel for channel, part in addresses]
    return [root / os.path.expanduser(path) for path in paths]


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
        raise SolveError(f"{name} resolves to {path}, which is not a package", "name another index or version")
    if not any(real.is_relative_to(folder.resolve()) for folder in folders):
        raise SolveError(
            f"{name} resolves to {path}, a file of this machine that is outside the project",
            "copy it into the project and name it there",
        )
    return real


def is_open_repository(url: str) -> bool:
    """Whether git would reach it without encryption: it sends passwords of ``.netrc`` to whoever asks for one."""
    found = re.match(r"(?:git\+(?:http|git)|http|git)://(?:[^/@]*@)?(\[[^]]*\]|[^/:]*)", url, re.IGNORECASE)
    return found is not None and found.group(1).lower() not in _LOOPBACK


def check_repository(name: str, url: str) -> None:
    """Raise SolveError for a repository of this machine, or one that is reached without encryption."""
    parts = urlsplit(url)
    scheme = parts.scheme.removeprefix("git+").lower()
    hint = "name a repository by https or ssh, or build a wheel of it"
    if scheme not in _REPOSITORIES:
        raise SolveError(f"{name} resolves to the repository {url[:200]}, which is not on a server", hint)
    if is_open_repository(url):
        raise SolveError(f"{name} is in the repository {url[:200]}, which is reached without encryption", hint)
