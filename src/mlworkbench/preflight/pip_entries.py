"""Versions that pip entries allow, and replacements for entries.

Plain versions are compared without ``packaging``, because importing it would delay every submission.
"""

from __future__ import annotations

import re

from ..environments.dependencies import PipLine

Release = tuple[int, ...]
_PLAIN = re.compile(r"\d+(?:\.\d+)*")
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")


def pinned_version(line: PipLine) -> str | None:
    """Return the exact version of an entry, or None if it is not pinned."""
    text = line.specifier
    version = text.lstrip("=").strip() if text.startswith("==") and "," not in text else ""
    if line.wheel:
        version = line.wheel.split("-")[1] if line.wheel.count("-") >= 4 else ""
    version = version.removesuffix(".*").split("+")[0]
    if _PLAIN.fullmatch(version) or not version:
        return version or None
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - few entries need it

    try:
        return str(Version(version))
    except InvalidVersion:
        return None


def is_older(first: str, second: str) -> bool:
    """Return whether the version ``first`` is older than ``second``."""
    if _PLAIN.fullmatch(first) and _PLAIN.fullmatch(second):
        return _release(first) < _release(second)
    from packaging.version import Version  # noqa: PLC0415 - few entries need it

    return Version(first) < Version(second)


def admits(line: PipLine, version: str) -> bool:
    """Return whether an entry allows the given version."""
    clauses = [_CLAUSE.fullmatch(part.strip()) for part in line.specifier.split(",") if part.strip()]
    plain = [clause for clause in clauses if clause and (not clause[3] or clause[1] in ("==", "!="))]
    if len(plain) == len(clauses) and _PLAIN.fullmatch(version):
        return all(_satisfies(version, clause[1], clause[2], bool(clause[3])) for clause in plain)
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - few entries need it

    try:
        return SpecifierSet(line.specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _satisfies(version: str, operator: str, other: str, wildcard: bool) -> bool:
    release, limit = _release(version), _release(other)
    if wildcard or operator == "~=":
        parts = [int(part) for part in other.split(".")]
        prefix = parts if wildcard else parts[:-1]
        matches = [*release, *[0] * len(prefix)][: len(prefix)] == prefix
        return matches == (operator != "!=") and (operator != "~=" or release >= limit)
    return {
        "==": release == limit,
        "!=": release != limit,
        ">=": release >= limit,
        "<=": release <= limit,
        "<": release < limit,
        ">": release > limit,
    }[operator]


def _release(version: str) -> Release:
    """Return a plain version as numbers without trailing zeros, so that 2.0 equals 2."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def with_marker(line: PipLine, new: str | None) -> str | None:
    """Return a replacement entry with the original entry's marker."""
    return f"{new} ; {line.marker}" if new and line.marker else new


def format_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
