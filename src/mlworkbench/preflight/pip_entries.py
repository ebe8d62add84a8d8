"""Entries of pip as rules need them: which versions they admit, and the same entry with another package.

Plain versions are compared here; ``packaging`` is asked about the rest. A submit waits for its import.
"""

from __future__ import annotations

import re

from ..environments.dependencies import PipLine

Release = tuple[int, ...]
_PLAIN = re.compile(r"\d+(?:\.\d+)*")
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")


def pinned(line: PipLine) -> str | None:
    """The one version that an entry asks for, if it does."""
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


def before(first: str, second: str) -> bool:
    """Whether a version is older than another."""
    if _PLAIN.fullmatch(first) and _PLAIN.fullmatch(second):
        return _release(first) < _release(second)
    from packaging.version import Version  # noqa: PLC0415 - few entries need it

    return Version(first) < Version(second)


def admits(line: PipLine, version: str) -> bool:
    """Whether an entry would take that version."""
    clauses = [_CLAUSE.fullmatch(part.strip()) for part in line.specifier.split(",") if part.strip()]
    plain = [one for one in clauses if one and (not one[3] or one[1] in ("==", "!="))]
    if len(plain) == len(clauses) and _PLAIN.fullmatch(version):
        return all(_holds(version, one[1], one[2], bool(one[3])) for one in plain)
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - few entries need it

    try:
        return SpecifierSet(line.specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _holds(version: str, sign: str, other: str, any_below: bool) -> bool:
    have, limit = _release(version), _release(other)
    if any_below or sign == "~=":
        parts = [int(part) for part in other.split(".")]
        family = parts if any_below else parts[:-1]
        inside = [*have, *[0] * len(family)][: len(family)] == family
        return inside == (sign != "!=") and (sign != "~=" or have >= limit)
    return {
        "==": have == limit,
        "!=": have != limit,
        ">=": have >= limit,
        "<=": have <= limit,
        "<": have < limit,
        ">": have > limit,
    }[sign]


def _release(version: str) -> Release:
    """A plain version as numbers, without zeros at its end: 2.0 and 2 are the same."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def rewritten(line: PipLine, new: str | None) -> str | None:
    """The entry for another package, with the marker that it had."""
    return f"{new} ; {line.marker}" if new and line.marker else new


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
