"""Dependencies of ``[tool.poetry]`` as requirements of pip, where these express the same."""

from __future__ import annotations

import re
from typing import Any

EXPORT = "run 'poetry export -f requirements.txt -o requirements.txt' before 'mlw project init'"
_RANGE = re.compile(r"(?P<operator>\^|~(?!=))\s*(?P<version>\d+(?:\.\d+){0,3})")
_EXACT = re.compile(r"=?\s*(\d+(?:\.\w+)*(?:\.\*)?)")
_STANDARD = re.compile(r"(?:===?|!=|~=|[<>]=?)\s*[\w.*+!-]+")


def poetry_requirement(name: str, value: Any) -> str | None:
    """The requirement for an entry such as ``numpy = "^1.26"``; None if pip has no equivalent."""
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
    """The specifier of PEP 440 for versions as Poetry writes them; None if there is none."""
    if text.strip() == "*":
        return ""
    parts = [_versions(part.strip()) for part in text.split(",")]
    return ",".join(part for part in parts if part) if all(parts) else None


def _versions(text: str) -> str | None:
    if limits := _RANGE.fullmatch(text):
        version = limits["version"]
        numbers = [int(number) for number in version.split(".")]
        if limits["operator"] == "^":  # up to the next change of the first number that is not 0
            last = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        else:
            last = min(1, len(numbers) - 1)
        end = [*numbers[:last], numbers[last] + 1]
        return f">={version},<{'.'.join(map(str, end))}"
    if exact := _EXACT.fullmatch(text):
        return f"=={exact[1]}"
    return text.replace(" ", "") if _STANDARD.fullmatch(text) else None
