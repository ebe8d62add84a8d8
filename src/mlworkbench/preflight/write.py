"""Entries of pip as rules need them: which versions they admit, and the same entry with another package."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from ..environments.dependencies import PipLine


def pinned(line: PipLine) -> str | None:
    """The one version that an entry asks for, if it does."""
    text = line.specifier
    version = text.lstrip("=").strip() if text.startswith("==") and "," not in text else ""
    if line.wheel:
        version = line.wheel.split("-")[1] if line.wheel.count("-") >= 4 else ""
    try:
        return str(Version(version.removesuffix(".*").split("+")[0]))
    except InvalidVersion:
        return None


def admits(line: PipLine, version: str) -> bool:
    """Whether an entry would take that version."""
    try:
        return SpecifierSet(line.specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def rewritten(line: PipLine, new: str | None) -> str | None:
    """The entry for another package, with the marker that it had."""
    return f"{new} ; {line.marker}" if new and line.marker else new


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
