"""Local files among resolved packages. They must be in the project or in folders that the user allows.

An index may respond with any URL, and a package may depend on any URL. ``file:`` and ``git+file:``
URLs would copy the user's files into an environment that project code can read. So would a folder
that the project lists as a package source: if it is outside the project, it must be in a folder
that the user allows for all projects (``mlw settings add package-folders``).
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
from .dependencies import Dependencies, Line
from .package_sources import channels_of, is_local_channel, is_remote

ARCHIVES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz", ".tar.xz")
_CONDA_ARCHIVES = (".conda", ".tar.bz2")
_SOURCE_OPTIONS = ("--index-url", "--extra-index-url", "--find-links")
_REPOSITORY_SCHEMES = ("https", "ssh", "http", "git")
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")


def local_path(file: Mapping[str, Any], root: Path) -> Path | None:
    """Return the path of a resolved file if it is on this machine."""
    if "path" in file:
        return root / str(file["path"])
    parts = urlsplit(str(file.get("url", "")))
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def local_folders(addresses: Iterable[str], root: Path) -> list[Path]:
    """Return the local folders among index URLs and links. Paths may be relative to ``root``."""
    parts = [(address, urlsplit(address)) for address in addresses if address]
    local = [(address, part) for address, part in parts if part.scheme == "file" or "://" not in address]
    return [root / (url2pathname(part.path) if part.scheme == "file" else address) for address, part in local]


def check_sources(dependencies: Dependencies, root: Path, allowed: Iterable[Path]) -> None:
    """Raise ConfigError if the project uses a folder as a package source without permission.

    ``allowed`` contains the folders outside the project that the user allows.
    """
    whole = Line("", dependencies.file, 0)
    sources: list[tuple[Line, str]] = [
        (option, option.value)
        for option in dependencies.options
        if option.name in _SOURCE_OPTIONS and option.value and not is_remote(option.value)
    ]
    sources += [(whole, channel) for channel in channels_of(dependencies) if is_local_channel(channel)]
    allowed_roots = [root.resolve(), *(folder.resolve() for folder in allowed)]
    for line, address in sources:
        path = _to_path(address, root)
        if not any(path.resolve().is_relative_to(allowed_root) for allowed_root in allowed_roots):
            allow = f"to allow all projects to install packages from it, run: mlw settings add package-folders {path}"
            raise ConfigError(
                f"{address[:200]} is outside the project, and packages from it are not allowed",
                "copy the packages into the project" if path == path.parent else allow,
                path=line.file,
                line=line.line or None,
            )


def _to_path(address: str, root: Path) -> Path:
    """Return the folder for a file URL or a path, which may be relative to the project."""
    scheme, _, rest = address.partition(":")
    if scheme.lower() == "file":
        return root / url2pathname(urlsplit(rest).path)
    return root / os.path.expanduser(address)


def conda_files(conda: Iterable[dict[str, Any]], folders: Iterable[Path]) -> dict[str, Path]:
    """Return packages from local channels as digest → path, and remove the paths from the lock entries.

    A missing SHA-256 is computed from the file, because old channels provide only MD5.
    """
    folders, files = list(folders), {}
    local = [(entry, Path(url2pathname(urlsplit(str(entry.pop("here"))).path))) for entry in conda if "here" in entry]
    for entry, path in local:
        real = allowed_file(str(entry["name"]), path, folders)
        entry["sha256"] = entry["sha256"] or digest_of(real)
        files[entry["sha256"]] = real
    return files


def digest_of(path: Path) -> str:
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
    return sha256.hexdigest()


def allowed_file(name: str, path: Path, folders: Iterable[Path]) -> Path:
    """Return the path with links resolved. Raise SolveError unless it is a package file in one of ``folders``."""
    real = path.resolve()
    if not real.name.lower().endswith((*ARCHIVES, *_CONDA_ARCHIVES)) or not real.is_file():
        raise SolveError(f"{name} resolves to {path}, which is not a package", "use another index or version")
    if not any(real.is_relative_to(folder.resolve()) for folder in folders):
        raise SolveError(
            f"{name} resolves to {path}, a local file outside the project",
            "copy it into the project and reference it there, or allow its folder for all projects:"
            f" mlw settings add package-folders {real.parent}",
        )
    return real


def is_unencrypted_repository(url: str) -> bool:
    """Return whether git would send passwords from ``.netrc`` over an unencrypted connection."""
    match = re.match(r"(?:git\+(?:http|git)|http|git)://(?:[^/@]*@)?(\[[^]]*\]|[^/:]*)", url, re.IGNORECASE)
    return match is not None and match.group(1).lower() not in _LOOPBACK


def check_repository(name: str, url: str) -> None:
    """Raise SolveError for a repository that is local or uses an unencrypted connection."""
    parts = urlsplit(url)
    scheme = parts.scheme.removeprefix("git+").lower()
    hint = "use a repository URL with https or ssh, or build a wheel"
    if scheme not in _REPOSITORY_SCHEMES:
        raise SolveError(f"{name} resolves to {url[:200]!r}, which is not a repository on a server", hint)
    if is_unencrypted_repository(url):
        raise SolveError(f"{name} resolves to {url[:200]}, which uses an unencrypted connection", hint)
