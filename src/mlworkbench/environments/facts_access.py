"""Access to a single fact about a machine, from ``Facts`` or from the mapping in an attachment.

A submit has only the mapping, and converting it to ``Facts`` would take longer than the lookups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..hosts.host_facts import Facts

    FactSource = Facts | Mapping[str, Any]


def fact(facts: FactSource | None, section: str, name: str) -> str | None:
    """Return a fact, as in ``fact(facts, "os", "arch")``, or None if it is unknown or not a string."""
    values = facts.get(section) if isinstance(facts, Mapping) else getattr(facts, section, None)
    value = values.get(name) if isinstance(values, Mapping) else getattr(values, name, None)
    return value if isinstance(value, str) else None
