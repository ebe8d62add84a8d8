"""Read the dependency file of a project in any supported format."""

from __future__ import annotations

from pathlib import Path

from .dependencies import Dependencies
from .dependency_parser import check_addresses, read_conda, read_requirements

_LOCK_FILES = ("pyproject.toml", "uv.lock", "pixi.lock", "pixi.toml")


def read_dependencies(path: Path, root: Path) -> Dependencies:
    """Read a dependency file of the project in ``root``. ConfigError includes the file and line."""
    if path.name in _LOCK_FILES:
        from .lock_readers import read_lockfile  # noqa: PLC0415 - it reads files that few projects have

        dependencies = read_lockfile(path, root)
    else:
        dependencies = read_requirements(path, root) if path.suffix in (".txt", ".in") else read_conda(path, root)
    check_addresses(dependencies)
    return dependencies
