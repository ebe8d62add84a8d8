"""Reads the file that lists what a project needs, whichever kind of file it is."""

from __future__ import annotations

from pathlib import Path

from .dependencies import Dependencies
from .reading import check_addresses, read_conda, read_requirements

_LOCK_FILES = ("pyproject.toml", "uv.lock", "pixi.lock", "pixi.toml")


def read_dependencies(path: Path, root: Path) -> Dependencies:
    """What a file of the project asks for; ``root`` is the project. Raises ConfigError with file and line."""
    if path.name in _LOCK_FILES:
        from .lockfiles import read_lockfile  # noqa: PLC0415 - it reads files that few projects have

        found = read_lockfile(path, root)
    else:
        found = read_requirements(path, root) if path.suffix in (".txt", ".in") else read_conda(path, root)
    check_addresses(found)
    return found
