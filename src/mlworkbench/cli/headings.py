"""Custom table headings for some record keys."""

from __future__ import annotations

from typing import Any

_HEADINGS = {"id": "ID", "python_because": "Python source", "python_problem": "Python problem"}


def python_facts(facts: dict[str, Any], output: str, query: str | None) -> dict[str, Any]:
    """Return the facts with readable headings for tables. Other formats and queries keep the keys."""
    if output != "table" or query is not None:
        return facts
    return {_HEADINGS.get(name, name): value for name, value in facts.items()}
