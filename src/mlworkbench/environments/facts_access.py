"""One thing out of what is known of a machine: from ``Facts``, or from the mapping that an attachment keeps.

A submit has the mapping, and making ``Facts`` of it takes longer than all that is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..hosts.facts import Facts

    Known = Facts | Mapping[str, Any]


def fact(known: Known | None, part: str, name: str) -> str | None:
    """Such as ``fact(known, "os", "arch")``; None if nobody could tell, or if it is no text."""
    found = known.get(part) if isinstance(known, Mapping) else getattr(known, part, None)
    value = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
    return value if isinstance(value, str) else None
