"""A package of pip by its name: ``tensorflow[and-cuda]>=2.15 ; sys_platform == "linux"``.

The usual forms are read here, all others by ``packaging``, whose import takes longer than a submit should wait.
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


class Named(NamedTuple):
    """What an entry says. Specifiers and markers are as ``packaging`` writes them."""

    name: str  # normalised
    extras: tuple[str, ...]
    specifier: str
    marker: str | None
    url: str | None = None


def normal(name: str) -> str:
    """The one form of a name, in which ``Tensorflow_GPU`` is ``tensorflow-gpu``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_named(text: str) -> Named:
    """Raises ValueError with what is wrong."""
    return _usual(text) or _any(text)


def _usual(text: str) -> Named | None:
    found = _NAMED.fullmatch(text.strip())
    if not found:
        return None
    parts = [part.strip() for part in found["specifier"].split(",")] if found["specifier"].strip() else []
    clauses = [_CLAUSE.fullmatch(part) for part in parts]
    marker = _marker(found["marker"]) if found["marker"] is not None else None
    extras = [one.strip() for one in (found["extras"] or "").split(",")] if found["extras"] else []
    if not all(map(_sound, clauses)) or not all(extras) or (marker is None) != (found["marker"] is None):
        return None
    specifier = ",".join(sorted({one[1] + one[2] for one in clauses if one}))
    return Named(normal(found["name"]), tuple(sorted(set(extras))), specifier, marker)


def _sound(clause: re.Match[str] | None) -> bool:
    """Not every version goes with every sign: the others are explained elsewhere."""
    if clause is None:
        return False
    sign, version = clause[1], clause[2]
    if sign == "~=" and "." not in version:
        return False
    return sign in ("==", "!=") or not ("*" in version or "+" in version)


def _marker(text: str) -> str | None:
    """Conditions in a row, without brackets; None if it is anything else."""
    said = []
    for index, part in enumerate(re.split(r"\s+(and|or)\s+", text.strip())):
        term = _TERM.fullmatch(part.strip())
        if index % 2 == 0 and not term:
            return None
        said.append(f'{term[1]} {term[2]} "{term[3] or term[4] or ""}"' if term and index % 2 == 0 else part)
    return " ".join(said)


def _any(text: str) -> Named:
    from packaging.requirements import Requirement  # noqa: PLC0415 - few entries need it

    parsed = Requirement(text)
    marker = str(parsed.marker) if parsed.marker else None
    return Named(normal(parsed.name), tuple(sorted(parsed.extras)), str(parsed.specifier), marker, parsed.url)
