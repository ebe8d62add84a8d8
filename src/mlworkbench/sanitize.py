"""Foreign text in one line that a terminal shows and does not obey."""

from __future__ import annotations

import unicodedata

# Persian and the Indian scripts, and emoji, are written with these two joiners.
_JOINERS = "\u200c\u200d"
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ESCAPES = {"\x1b": "^[", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str, limit: int | None = None) -> str:
    """``text`` in one line that a terminal shows and does not obey; at most ``limit`` characters of it."""
    if limit is not None:
        text = text[: limit + 1]
    if not text.isprintable():
        text = "".join(escape(char) if _unseen(char) else char for char in text)
    if limit is not None and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…"
    return text


def escape(char: str) -> str:
    known = _ESCAPES.get(char)
    if known:
        return known
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # how Python spells a byte that is no UTF-8
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _unseen(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN and char not in _JOINERS
