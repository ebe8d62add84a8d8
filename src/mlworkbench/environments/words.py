"""A resolver's own explanation, in a few lines."""

from __future__ import annotations

_MOST_LINES = 12
_MOST_CHARACTERS = 300


def shorten(text: str) -> str:
    """Its first lines, none too long; what was left out is said."""
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    kept = [line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…" for line in lines]
    if len(kept) > _MOST_LINES:
        kept = [*kept[: _MOST_LINES - 1], f"… and {len(kept) - _MOST_LINES + 1} more lines"]
    return "\n".join("  " + line for line in kept)
