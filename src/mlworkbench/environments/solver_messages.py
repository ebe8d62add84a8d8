"""Text of and for a resolver: its explanation in a few lines, and what fits into one line."""

from __future__ import annotations

import re

_MOST_LINES = 12
_MOST_CHARACTERS = 300
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")


def shorten(text: str) -> str:
    """Its first lines, none too long; what was left out is said."""
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    kept = [line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…" for line in lines]
    if len(kept) > _MOST_LINES:
        kept = [*kept[: _MOST_LINES - 1], f"… and {len(kept) - _MOST_LINES + 1} more lines"]
    return "\n".join("  " + line for line in kept)


def one_line(text: str) -> bool:
    """Whether it is a single line by every definition of a line break."""
    return _CONTROL.search(text) is None
