"""Bytes of a run's files → events and metric points. Every byte comes from a target and is hostile input."""

from __future__ import annotations

import json
from typing import Any

from ..model import Event
from .fold import event_from

LINE = 4 * 1024 * 1024  # a longer line is none of ours


def _lines(data: bytes) -> tuple[list[bytes], int]:
    """Whole lines, and how many bytes they take; the rest waits for its end."""
    end = data.rfind(b"\n") + 1
    if end == 0 and len(data) >= LINE:
        return [], len(data)
    return data[:end].splitlines(), end


def parse_events(data: bytes) -> tuple[list[Event], int]:
    """Events of whole lines, in order, and the number of bytes used. Torn lines are what a crash leaves: skipped."""
    lines, used = _lines(data)
    events = []
    for line in lines:
        try:
            events.append(event_from(json.loads(line)))
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            continue
    return events, used


def parse_metrics(data: bytes) -> tuple[dict[str, Any], int]:
    """The latest value of each name, and the number of bytes used."""
    lines, used = _lines(data)
    latest: dict[str, Any] = {}
    for line in lines:
        try:
            point = json.loads(line)
            name, value = str(point["n"]), point["v"]
            latest[name] = float(value) if "f" in point else value  # NaN and infinities travel as words
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            continue
    return latest, used
