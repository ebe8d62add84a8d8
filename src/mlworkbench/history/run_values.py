"""The values of a run that filters, sort orders, and groups use: its metrics and parameters.

Numbers are stored as integers with the same order (``sort_key``). SQLite compares and sorts them as they are, and
verifies all values of a name with integer arithmetic in one scan.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..model import Run
from .parameters import number, run_parameters, text
from .sqlite_values import sqlite_text

METRIC, PARAMETER = "metric", "param"
MAX_CHARACTERS = (
    4 * 1024 * 1024
)  # maximum characters of names and texts of one kind, because every update compares them
_MAX_METRIC_TEXT = 200  # maximum length of a metric value that filters can match
_ENTRY_SIZE = 30  # characters of an entry besides its name and text
_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")
_ALL_BITS = (1 << 63) - 1


class Value(NamedTuple):
    """The last value of a metric or parameter. Numbers are sort keys."""

    number: int | None
    least: int | None = None  # minimum and maximum of a series; None if it has one point
    greatest: int | None = None
    text: str | None = None


Values = dict[tuple[str, str], Value]  # by kind and name


def sort_key(value: float) -> int:
    """Return an integer that is ordered like the number: its bits, with those of negative numbers inverted."""
    bits: int = _LONG.unpack(_DOUBLE.pack(value + 0.0))[0]  # adding 0.0 makes -0.0 equal to 0.0
    return bits if bits >= 0 else bits ^ _ALL_BITS


def numbers_from_keys(keys: Sequence[int]) -> array[float]:
    """Return the numbers for sort keys."""
    bits = array("q", keys if min(keys, default=0) >= 0 else [key if key >= 0 else key ^ _ALL_BITS for key in keys])
    return array("d", bits.tobytes())


def values_of(run: Run) -> tuple[Values, int]:
    """Return the values of a run, and the number of values dropped because of the size limit."""
    metrics, metrics_left_out = _limit(_metrics(run))
    parameters, parameters_left_out = _limit(_parameters(run))
    return {**metrics, **parameters}, metrics_left_out + parameters_left_out


def _metrics(run: Run) -> Iterable[tuple[tuple[str, str], Value]]:
    for name, value in run.metrics.items():
        key = METRIC, sqlite_text(name)
        if isinstance(value, str):
            if len(value) <= _MAX_METRIC_TEXT:
                yield key, Value(None, text=sqlite_text(value))
        elif isinstance(value, (int, float)):  # lists and long values cannot be compared
            span = run.spans.get(name)
            least, greatest = span[1:3] if span and span.length > 1 else (None, None)
            found = Value(_key(value), _key(least), _key(greatest))
            if found != (None, None, None, None):  # not a number, as its whole series
                yield key, found


def _parameters(run: Run) -> Iterable[tuple[tuple[str, str], Value]]:
    for name, value in run_parameters(run).items():
        shown = text(value)
        yield (
            (PARAMETER, sqlite_text(name)),
            Value(_key(number(value)), text=None if shown is None else sqlite_text(shown)),
        )


def _key(value: Any) -> int | None:
    if value is None or value != value:  # NaN is unknown
        return None
    try:
        return sort_key(float(value))
    except OverflowError:  # an integer beyond the largest double
        return sort_key(float("inf") if value > 0 else float("-inf"))


def _limit(entries: Iterable[tuple[tuple[str, str], Value]]) -> tuple[Values, int]:
    size = left_out = 0
    kept: Values = {}
    for key, value in entries:
        size += len(key[1]) + len(value.text or "") + _ENTRY_SIZE
        if size > MAX_CHARACTERS:
            left_out += 1
        else:
            kept.setdefault(key, value)
    return kept, left_out
