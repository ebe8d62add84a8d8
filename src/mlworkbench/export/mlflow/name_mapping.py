"""Map names and values to unique ones that satisfy MLflow's character and length limits."""

from __future__ import annotations

import posixpath
import re

MAX_NAME_LENGTH = 250
MAX_PARAM_LENGTH = 6000
_INVALID = re.compile(r"[^/\w.\- :]")
_INVALID_OR_COLON = re.compile(r"[^/\w.\- ]")
_INVALID_IN_PATH = re.compile("[#%\\\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # decoded twice or rejected by the server


class NameMapper:
    """A mapper from names to unique MLflow names. The same name always gets the same result."""

    def __init__(self, *, colon: bool = True, for_files: bool = False) -> None:
        self._colon = colon
        self._for_files = for_files
        self._mapped: dict[str, str] = {}
        self._taken: set[str] = set()

    def __call__(self, name: str) -> str:
        mapped = self._mapped.get(name)
        if mapped is not None:
            return mapped
        base = _valid_path(name) if self._for_files else valid_name(name, colon=self._colon)
        candidate, number = base, 1
        while candidate in self._taken:
            number += 1
            candidate = _add_number(base, number, self._for_files)
        self._mapped[name] = candidate
        self._taken.add(candidate)
        return candidate

    def changed(self) -> dict[str, str]:
        """Return the names that were changed, as original name → MLflow name."""
        return {name: mapped for name, mapped in self._mapped.items() if name != mapped}


def valid_name(name: str, *, colon: bool = True) -> str:
    """Return a valid name for a parameter, metric, or tag. Old servers do not accept a colon."""
    result = (
        (_INVALID if colon else _INVALID_OR_COLON)
        .sub("_", name.encode("utf-8", "replace").decode())[:MAX_NAME_LENGTH]
        .strip()
    )
    if _is_unsafe_path(result):
        result = posixpath.normpath(result).lstrip("/")
    return result.replace("/", "_").replace(".", "_") or "_" if _is_unsafe_path(result) else result


def _is_unsafe_path(name: str) -> bool:
    """Return whether a name is not a normalized relative path. MLflow may use names as file names."""
    normalized = posixpath.normpath(name)
    return normalized != name or normalized == "." or normalized.startswith(("..", "/"))


def _valid_path(name: str) -> str:
    return _INVALID_IN_PATH.sub("_", name)


def _add_number(name: str, number: int, for_files: bool) -> str:
    suffix = f"-{number}"
    if for_files:
        stem, extension = posixpath.splitext(name)
        return f"{stem}{suffix}{extension}"
    return name[: MAX_NAME_LENGTH - len(suffix)] + suffix


def truncate(text: str, limit: int) -> str:
    """Truncate a string to a maximum length, marking it with an ellipsis."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 2] + " …"
