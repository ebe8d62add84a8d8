"""Bytes of a run's files → events, points and records. Every byte comes from a target and is hostile input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf
from typing import Any

from ..model import Event
from ..remote.shared.metric_files import LONGEST_LINE
from .fold import event_from

LINE = LONGEST_LINE  # a longer line is none of ours
BAD = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError)
_FLOATS = ("NaN", "Infinity", "-Infinity")
_DEEPEST = 20


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
        except BAD:
            continue
    return events, used


def before_end(data: bytes) -> bytes:
    """The events up to the one that ends the run, without it."""
    at = 0
    for line in data.splitlines(keepends=True):
        if b"finished" in line and any(event.kind == "finished" for event in parse_events(line)[0]):
            break
        at += len(line)
    return data[:at]


def parse_lines(data: bytes) -> tuple[Iterator[dict[str, Any]], int]:
    """What whole lines of a metrics file say, in order, and the number of bytes used."""
    lines, used = _lines(data)
    return _objects(lines), used


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if type(found) is dict:
            yield found


def value_of(line: dict[str, Any]) -> Any:
    """The value of a point: NaN and infinities travel as words, in lists as ``{"f": "NaN"}``."""
    value = line["v"]
    if "f" in line:
        return float(value)
    return whole(value) if type(value) in (list, dict) else value


def whole(value: Any, depth: int = 0) -> Any:
    """The value with its words for NaN and infinities turned into numbers."""
    if depth > _DEEPEST:
        return None
    if type(value) is list:
        return [whole(one, depth + 1) if type(one) in (list, dict) else one for one in value]
    if type(value) is dict:
        if len(value) == 1 and value.get("f") in _FLOATS:
            return float(value["f"])
        return {name: whole(one, depth + 1) for name, one in value.items()}
    return value


def as_float(value: float) -> float:
    """A whole number that is too large for a float is infinite."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf
