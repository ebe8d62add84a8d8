"""Parse a pip package given by name: ``tensorflow[and-cuda]>=2.15 ; sys_platform == "linux"``.

Common forms are parsed here. All others are parsed by ``packaging``, which is slow to import and
would delay every submit.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NAMED = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[(?P<extras>[A-Za-z0-9._,\s-]+)\])?"
    r"\s*(?P<specifier>[^;@()\[\]]*)(?:;(?P<marker>.*))?"
)
_CLAUSE = re.compile(
    r"(==|!=|>=|<=|~=|<|>)\s*(\d+(?:\.\d+)*(?:\.\*|(?:a|b|rc|\.post|\.dev)\d+|\+[a-z0-9]+(?:\.[a-z0-9]+)*)?)"
)
_TERM = re.compile(
    r"(python_version|python_full_version|sys_platform|platform_system|platform_machine|os_name|implementation_name"
    r"|platform_python_implementation)\s*(==|!=|>=|<=|<|>)\s*(?:'([^'\"]*)'|\"([^'\"]*)\")"
)


class NamedRequirement(NamedTuple):
    """A parsed requirement. The specifier and marker use the format of ``packaging``."""

    name: str  # normalized
    extras: tuple[str, ...]
    specifier: str
    marker: str | None
    url: str | None = None


def normalize_name(name: str) -> str:
    """Normalize a package name: ``Tensorflow_GPU`` becomes ``tensorflow-gpu``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirement(text: str) -> NamedRequirement:
    """Parse a requirement. Raises ValueError with the reason if it is invalid."""
    return _parse_common(text) or _parse_with_packaging(text)


def _parse_common(text: str) -> NamedRequirement | None:
    match = _NAMED.fullmatch(text.strip())
    if not match:
        return None
    parts = [part.strip() for part in match["specifier"].split(",")] if match["specifier"].strip() else []
    clauses = [_CLAUSE.fullmatch(part) for part in parts]
    marker = _parse_marker(match["marker"]) if match["marker"] is not None else None
    extras = [item.strip() for item in (match["extras"] or "").split(",")] if match["extras"] else []
    if not all(map(_is_valid_clause, clauses)) or not all(extras) or (marker is None) != (match["marker"] is None):
        return None
    specifier = ",".join(sorted({item[1] + item[2] for item in clauses if item}))
    return NamedRequirement(normalize_name(match["name"]), tuple(sorted(set(extras))), specifier, marker)


def _is_valid_clause(clause: re.Match[str] | None) -> bool:
    """Return whether the version is valid for its operator. If not, ``packaging`` parses the text."""
    if clause is None:
        return False
    operator, version = clause[1], clause[2]
    if operator == "~=" and "." not in version:
        return False
    return operator in ("==", "!=") or not ("*" in version or "+" in version)


def _parse_marker(text: str) -> str | None:
    """Parse conditions joined by ``and`` or ``or``, without parentheses; else return None."""
    terms = []
    for index, part in enumerate(re.split(r"\s+(and|or)\s+", text.strip())):
        term = _TERM.fullmatch(part.strip())
        if index % 2 == 0 and not term:
            return None
        terms.append(f'{term[1]} {term[2]} "{term[3] or term[4] or ""}"' if term and index % 2 == 0 else part)
    return " ".join(terms)


def _parse_with_packaging(text: str) -> NamedRequirement:
    from packaging.requirements import Requirement  # noqa: PLC0415 - few entries need it

    parsed = Requirement(text)
    marker = str(parsed.marker) if parsed.marker else None
    return NamedRequirement(
        normalize_name(parsed.name), tuple(sorted(parsed.extras)), str(parsed.specifier), marker, parsed.url
    )
