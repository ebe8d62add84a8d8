"""Retries of a run: how many, after which failures, and after which delay."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .remote.shared.retry_causes import DEFAULT_CAUSES

DEFAULT_DELAY = 10.0
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Retries:
    """Retries of a run. The delay doubles with each attempt."""

    limit: int = 0
    causes: tuple[str, ...] = DEFAULT_CAUSES
    delay: float = DEFAULT_DELAY  # seconds before the second attempt


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as ``90``, ``90s``, ``15m``, or ``1h30m``, or None if it is invalid."""
    text = text.replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)([a-z]*)", text)
    whole = "".join(number + unit for number, unit in parts) == text
    whole = whole and (len(parts) == 1 or all(unit for _, unit in parts))  # 1h30 is ambiguous
    seconds = sum(float(number) * _UNITS.get(unit, float("nan")) for number, unit in parts)
    return seconds if whole and 0 < seconds < float("inf") else None
