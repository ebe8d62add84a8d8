"""Packages of a run's environment: from the lock file, or as the target recorded them for an existing Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..history.store import History
from ..model import Run
from ..runfiles.script_records import read_packages
from ..sanitize import plain


@dataclass(frozen=True)
class Package:
    """A package of an environment."""

    name: str
    version: str
    source: str  # conda or pip, or empty if it is unknown


def load_packages(history: History, run: Run) -> list[Package]:
    """Return the packages, sorted by name; none if they were not recorded."""
    lock = run.spec.lock or {}
    packages = _locked_packages(lock)
    if not packages and lock.get("kind") == "existing":
        recorded = read_packages(history.paths.root.run(run.spec.folder))
        packages = [Package(plain(name, 200), plain(version, 100), "") for name, version in recorded]
    return sorted(packages, key=lambda package: package.name.lower())


def _locked_packages(lock: Mapping[str, Any]) -> list[Package]:
    packages: list[Package] = []
    for source in ("conda", "pip"):
        entries: Sequence[Any] = lock.get(source) or ()
        packages += [
            Package(plain(str(entry.get("name")), 200), plain(str(entry.get("version")), 100), source)
            for entry in entries
            if isinstance(entry, dict)
        ]
    return packages
