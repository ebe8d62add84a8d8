"""Escape untrusted text for display on one line of a terminal."""

from __future__ import annotations

import unicodedata

# Persian, Indic scripts, and emoji require these two joiners.
_JOINERS = "\u200c\u200d"
_VISIBLE = frozenset({"Co", "Zs"})  # icons in terminal fonts, and spaces of any width
_ESCAPES = {"\x1b": "^[", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str, limit: int | None = None) -> str:
    """Return ``text`` on one line without control characters, truncated to ``limit`` characters."""
    if limit is not None:
        text = text[: limit + 1]
    if not text.isprintable():
        text = "".join(escape(char) if _is_invisible(char) else char for char in text)
    if limit is not None and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…"
    return text


def escape(char: str) -> str:
    named = _ESCAPES.get(char)
    if named:
        return named
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # surrogate escape for an invalid UTF-8 byte
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_invisible(char: str) -> bool:
    return not char.isprintable() and char not in _JOINERS and unicodedata.category(char) not in _VISIBLE
