"""Format metric and parameter values, and convert them for queries."""

from __future__ import annotations

import json
import math
from typing import Any

from ..history.journal_parsing import strict_json
from ..sanitize import plain


def format_value(value: Any, limit: int = 60) -> str:
    """Return a metric or parameter value as a short string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(strict_json(value))
    if is_long(value):
        return f"{plain(str(value['long']), 20)} of {plain(str(value['size']), 20)}"
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), limit)


def is_long(value: object) -> bool:
    """Return whether the index has only the size of the value; the run's series has the value itself."""
    return isinstance(value, dict) and set(value) == {"long", "size"}


def finite(value: Any) -> Any:
    """Replace NaN and infinities with None for a query: one diverged run must not break queries over all runs."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [finite(item) for item in value]
    return {name: finite(item) for name, item in value.items()} if isinstance(value, dict) else value
