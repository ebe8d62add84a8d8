"""Build tables of the histograms and the precision-recall curves in event files.

A table has the format of ``log_table``. It contains a limited number of steps, evenly chosen, and the last one.
"""

from __future__ import annotations

import os
import time

from ..run_reader import read_descriptor
from .distribution import MAX_ENCODED, QUANTILES, Histogram
from .event_file import HEAD_SIZE, MAX_RECORD, TAIL_SIZE, iterate_records, parse_event, record_length
from .protobuf_wire import InvalidEventFile, TooManyFields
from .summary_value import HISTOGRAMS, PR_CURVES

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

    Item = Tuple[int, Any]  # step and parsed value

PLOTTED = (HISTOGRAMS, PR_CURVES)
MAX_TABLES = 100  # maximum per run
MAX_STEPS = {HISTOGRAMS: 100, PR_CURVES: 20}  # maximum per table
_SECONDS = 10.0  # maximum time to read all event files
_CHUNK = 1 << 20
_HISTOGRAM_COLUMNS = ["step", "count", "mean", "min", *("p%d" % (100 * share) for share in QUANTILES), "max"]
_CURVE_COLUMNS = ["step", "threshold", "recall", "precision"]


class PlotTables:
    """The tables of one run. Reads whole event files, after the script has ended, so a restart loses nothing."""

    def __init__(self, messages: "Set[str]") -> None:
        self._messages = messages
        self._deadline = time.monotonic() + _SECONDS
        self._samples: Dict[Tuple[str, str], _Sample] = {}

    def read(self, descriptor: int, prefix: str) -> None:
        """Add the content of an event file. ``prefix`` distinguishes the names of different files."""
        offset, size = 0, os.fstat(descriptor).st_size
        try:
            while offset < size:
                if time.monotonic() >= self._deadline:
                    self._messages.add("not all histograms and PR curves could be read in time")
                    return
                used = self._read_chunk(read_descriptor(descriptor, offset, _CHUNK), descriptor, offset, prefix)
                if not used:
                    return
                offset += used
        except InvalidEventFile:
            return  # as in the reader of scalars, damage ends a file

    def _read_chunk(self, data: bytes, descriptor: int, offset: int, prefix: str) -> int:
        """Read the complete records in a chunk, at least one, and return their size."""
        used = 0
        for position, record in iterate_records(data):
            self._read_record(record, prefix)
            used = position + HEAD_SIZE + len(record) + TAIL_SIZE
        length = None if used else record_length(data, 0)
        if length is None:
            return used
        size = HEAD_SIZE + length + TAIL_SIZE
        if length <= MAX_RECORD:
            for _, record in iterate_records(read_descriptor(descriptor, offset, size)):
                self._read_record(record, prefix)
        return size

    def _read_record(self, record: bytes, prefix: str) -> None:
        try:
            _, step, summaries = parse_event(record)
            for summary in summaries:
                if summary.kind in PLOTTED and summary.value is not None:
                    self._add(summary.kind, prefix + summary.tag, step, *summary.value)
        except TooManyFields:
            return

    def _add(
        self, kind: str, name: str, step: int, parse: "Callable[[memoryview], Optional[Any]]", data: memoryview
    ) -> None:
        if len(data) > MAX_ENCODED:
            return
        if (kind, name) not in self._samples and len(self._samples) >= MAX_TABLES:
            self._messages.add("at most %d histograms and PR curves are stored as tables" % MAX_TABLES)
            return
        self._samples.setdefault((kind, name), _Sample(MAX_STEPS[kind])).add(step, parse, data)

    def tables(self) -> "Iterator[Tuple[str, str, Dict[str, Any]]]":
        """Yield the kind, the name, and the content of each table."""
        for (kind, name), sample in self._samples.items():
            items = sample.items()
            if items:
                yield kind, name, (_histogram_table(items) if kind == HISTOGRAMS else _curve_table(items))


class _Sample:
    """At most ``limit`` of the values that were added, at even distances, and the last value."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._number = 0
        self._stride = 1
        self._items: List[Item] = []
        self._last: Optional[Tuple[int, Callable[[memoryview], Optional[Any]], bytes]] = None

    def add(self, step: int, parse: "Callable[[memoryview], Optional[Any]]", data: memoryview) -> None:
        if self._number % self._stride:
            self._last = step, parse, bytes(data)
        else:
            self._last = None
            self._append(step, parse, data)
            if len(self._items) >= self._limit:
                del self._items[1::2]
                self._stride *= 2
        self._number += 1

    def items(self) -> "List[Item]":
        """Return the steps and values, by step."""
        if self._last is not None:
            step, parse, data = self._last
            self._append(step, parse, memoryview(data))
            self._last = None
        return sorted(self._items, key=lambda item: item[0])

    def _append(self, step: int, parse: "Callable[[memoryview], Optional[Any]]", data: memoryview) -> None:
        try:
            value = parse(data)
        except (InvalidEventFile, TooManyFields):
            return
        if value is not None:
            self._items.append((step, value))


def _histogram_table(items: "List[Item]") -> "Dict[str, Any]":
    def row(step: int, value: Histogram) -> "List[float]":
        return [step, *map(_round, (value.count, value.mean, value.low, *value.quantiles, value.high))]

    return {
        "columns": _HISTOGRAM_COLUMNS,
        "data": [row(step, value) for step, value in items],
        "buckets": [[_round(count) for count in value.buckets] for _, value in items],
    }


def _curve_table(items: "List[Item]") -> "Dict[str, Any]":
    rows = [
        [step, *map(_round, points[index : index + 3])] for step, points in items for index in range(0, len(points), 3)
    ]
    return {"columns": _CURVE_COLUMNS, "data": rows}


def _round(value: float) -> float:
    short = float("%.6g" % value)
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
