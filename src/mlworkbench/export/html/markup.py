"""Texts from anywhere → HTML that says them and does nothing else."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from ..material import plain_value

# Controls, marks that turn the direction of writing, halves of characters: shown as what they are.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
LONGEST = 2000


def shown(text: str, limit: int = LONGEST) -> str:
    """For the inside of an element, and for an attribute in double quotes."""
    if len(text) > limit:
        text = text[:limit] + "…"
    return html.escape(_HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text), quote=True)


def cell(value: Any) -> str:
    """A value as people read it, escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.6g}" if isinstance(value, float) else shown(str(value)[:40])
    if isinstance(value, dict) and value.get("long") in ("list", "text"):
        return shown(f"{value['long']} of {value.get('size')}")
    return shown(value if isinstance(value, str) else json.dumps(plain_value(value), ensure_ascii=False))


def lasting(seconds: float | None) -> str:
    """``1.3 s``, ``4 min 10 s``, ``3 h 5 min``."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def counted(count: int, thing: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
