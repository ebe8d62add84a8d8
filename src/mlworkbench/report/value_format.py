"""Values of metrics and parameters in few words, and as queries can take them."""

from __future__ import annotations

import json
import math
from typing import Any

from .plain import plain


def shown(value: Any, limit: int = 60) -> str:
    """A metric or a parameter in few words."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else _odd(value)
    if is_long(value):
        return f"{plain(str(value['long']), 20)} of {plain(str(value['size']), 20)}"
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), limit)


def _odd(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def is_long(value: object) -> bool:
    """Whether the index has only the size of it; the whole is in the run's series."""
    return isinstance(value, dict) and set(value) == {"long", "size"}


def finite(value: Any) -> Any:
    """NaN and infinities are no numbers to a query: one diverged run must not break it for all."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [finite(one) for one in value]
    return {name: finite(one) for name, one in value.items()} if isinstance(value, dict) else value
