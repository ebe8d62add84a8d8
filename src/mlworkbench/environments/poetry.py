"""Convert ``[tool.poetry]`` dependencies to pip requirements where an equivalent exists."""

from __future__ import annotations

import re
from typing import Any

EXPORT = "run 'poetry export -f requirements.txt -o requirements.txt' before 'mlw project init'"
_RANGE = re.compile(r"(?P<operator>\^|~(?!=))\s*(?P<version>\d+(?:\.\d+){0,3})")
_EXACT = re.compile(r"=?\s*(\d+(?:\.\w+)*(?:\.\*)?)")
_STANDARD = re.compile(r"(?:===?|!=|~=|[<>]=?)\s*[\w.*+!-]+")


def poetry_requirement(name: str, value: Any) -> str | None:
    """Return the pip requirement for an entry like ``numpy = "^1.26"``, or None if there is none."""
    extras = ""
    if isinstance(value, dict):
        if not set(value) <= {"version", "extras"} or not isinstance(value.get("extras", []), list):
            return None
        extras = f"[{','.join(map(str, value['extras']))}]" if value.get("extras") else ""
        value = value.get("version")
    if not isinstance(value, str) or not re.fullmatch(r"[\w.-]+", name):
        return None
    versions = _specifier(value)
    return None if versions is None else f"{name}{extras}{versions}"


def _specifier(text: str) -> str | None:
    """Return the PEP 440 specifier for a Poetry version constraint, or None if there is none."""
    if text.strip() == "*":
        return ""
    parts = [_versions(part.strip()) for part in text.split(",")]
    return ",".join(part for part in parts if part) if all(parts) else None


def _versions(text: str) -> str | None:
    if limits := _RANGE.fullmatch(text):
        version = limits["version"]
        numbers = [int(number) for number in version.split(".")]
        if limits["operator"] == "^":  # the first nonzero number must not change
            last = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        else:
            last = min(1, len(numbers) - 1)
        end = [*numbers[:last], numbers[last] + 1]
        return f">={version},<{'.'.join(map(str, end))}"
    if exact := _EXACT.fullmatch(text):
        return f"=={exact[1]}"
    return text.replace(" ", "") if _STANDARD.fullmatch(text) else None
