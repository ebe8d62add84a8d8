"""Convert untrusted strings to safe HTML."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from ...history.journal_parsing import strict_json

# Control characters, text direction marks, and surrogates are shown as escapes.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
MAX_LENGTH = 2000


def escape_text(text: str, limit: int = MAX_LENGTH) -> str:
    """Escape a string for use as element content or in a double-quoted attribute."""
    if len(text) > limit:
        text = text[:limit] + "…"
    return html.escape(_HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text), quote=True)


def cell(value: Any) -> str:
    """Format and escape a value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.6g}" if isinstance(value, float) else escape_text(str(value)[:40])
    if isinstance(value, dict) and value.get("long") in ("list", "text"):
        return escape_text(f"{value['long']} of {value.get('size')}")
    return escape_text(value if isinstance(value, str) else json.dumps(strict_json(value), ensure_ascii=False))


def format_duration(seconds: float | None) -> str:
    """Format a duration: ``1.3 s``, ``4 min 10 s``, ``3 h 5 min``."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def pluralize(count: int, thing: str) -> str:
    """Return a count with its noun: ``1 run``, ``2 runs``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
