"""Resolver output: shorten messages, and check that entries are single lines."""

from __future__ import annotations

import re

_MAX_LINES = 12
_MAX_CHARACTERS = 300
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")


def shorten(text: str) -> str:
    """Return the first lines, each truncated, and a note about omitted lines."""
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    shortened = [line if len(line) <= _MAX_CHARACTERS else line[: _MAX_CHARACTERS - 1] + "…" for line in lines]
    if len(shortened) > _MAX_LINES:
        shortened = [*shortened[: _MAX_LINES - 1], f"… and {len(shortened) - _MAX_LINES + 1} more lines"]
    return "\n".join("  " + line for line in shortened)


def is_single_line(text: str) -> bool:
    """Return whether a string is a single line by every definition of a line break."""
    return _CONTROL.search(text) is None
