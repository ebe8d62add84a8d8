"""Parse a run's files into events, points, and records. All bytes are untrusted input from a target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf, isfinite
from typing import Any

from ..model import Event
from ..remote.shared.metric_limits import MAX_LINE_LENGTH
from .run_state import parse_event

MAX_LINE = MAX_LINE_LENGTH  # mlw never writes longer lines
PARSE_ERRORS = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError)
_FLOATS = ("NaN", "Infinity", "-Infinity")
_MAX_DEPTH = 20


def _split_lines(data: bytes) -> tuple[list[bytes], int]:
    """Return the complete lines and their size in bytes, leaving an incomplete last line for later."""
    end = data.rfind(b"\n") + 1
    if end == 0 and len(data) >= MAX_LINE:
        return [], len(data)
    return data[:end].splitlines(), end


def parse_events(data: bytes) -> tuple[list[Event], int]:
    """Return the events from complete lines, and the number of bytes consumed.

    Lines that were truncated by a crash are skipped.
    """
    lines, used = _split_lines(data)
    events = []
    for line in lines:
        try:
            events.append(parse_event(json.loads(line)))
        except PARSE_ERRORS:
            continue
    return events, used


def events_before_finish(data: bytes) -> bytes:
    """Return the events that precede the ``finished`` event."""
    at = 0
    for line in data.splitlines(keepends=True):
        if b"finished" in line and any(event.kind == "finished" for event in parse_events(line)[0]):
            break
        at += len(line)
    return data[:at]


def parse_metric_lines(data: bytes) -> tuple[Iterator[dict[str, Any]], int]:
    """Return the objects from complete lines of a metrics file, and the number of bytes consumed."""
    lines, used = _split_lines(data)
    return _parse_objects(lines), used


def _parse_objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if type(value) is dict:
            yield value


def point_value(line: dict[str, Any]) -> Any:
    """Return the value of a point.

    NaN and infinities are encoded as strings, and in lists as ``{"f": "NaN"}``.
    """
    value = line["v"]
    if "f" in line:
        return float(value)
    return decode_floats(value) if type(value) in (list, dict) else value


def decode_floats(value: Any, depth: int = 0) -> Any:
    """Replace encoded NaN and infinities in a value with floats."""
    if depth > _MAX_DEPTH:
        return None
    if type(value) is list:
        return [decode_floats(item, depth + 1) if type(item) in (list, dict) else item for item in value]
    if type(value) is dict:
        if len(value) == 1 and value.get("f") in _FLOATS:
            return float(value["f"])
        return {name: decode_floats(item, depth + 1) for name, item in value.items()}
    return value


def as_float(value: float) -> float:
    """Convert a number to a float. An integer that is too large becomes infinite."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def strict_json(value: Any) -> Any:
    """Return a value that is valid in strict JSON, with NaN and infinities as strings."""
    if isinstance(value, float):
        if isfinite(value):
            return value
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(name): strict_json(item) for name, item in value.items()}
    return [strict_json(item) for item in value] if isinstance(value, (list, tuple)) else value
