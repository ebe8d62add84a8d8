"""Headings for people in place of the keys of a record, where these do not read well."""

from __future__ import annotations

from typing import Any

_PYTHON = {"id": "ID", "python_because": "Python source", "python_problem": "Python problem"}


def python_facts(facts: dict[str, Any], output: str, query: str | None) -> dict[str, Any]:
    """Facts about a project or an environment and its Python; for programs as they are."""
    if output != "table" or query is not None:
        return facts
    return {_PYTHON.get(name, name): value for name, value in facts.items()}
