"""Export runs or their metric points as CSV. Strings are escaped so that spreadsheets do not run them as formulas."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..history.journal_parsing import strict_json
from ..history.parameters import run_parameters
from ..history.series.series_store import NO_STEP, Series
from .run_data import Item, format_time, points_of

Write = Callable[[str], None]

_KEYS = (
    "run_id run_number name status ending cause exit_code script_name arguments target run_configuration project"
    " created_utc start_time_utc end_time_utc"
).split()
_EXTRA_KEYS = ("duration_seconds", "parent_run_id", "commit", "user", "gpu", "note", "tags")
_POINT_COLUMNS = ("run_id", "metric", "step", "time_utc", "value")
_FORMULA_STARTS = "=+-@\t\r\n"
_BUFFERED_LINES = 1000  # lines per write
_MAX_TIMESTAMP = 250_000_000_000.0  # seconds; later years have more than four digits


def write_runs(items: Sequence[Item], write: Write) -> None:
    """Write one row per run with its properties, ``params.…``, and ``metrics.…``."""
    params = [run_parameters(item.run) for item in items]
    names = dict.fromkeys(name for run_params in params for name in run_params)
    metrics = dict.fromkeys(name for item in items for name in item.run.metrics)
    titles = [*_KEYS, *_EXTRA_KEYS, *(f"params.{name}" for name in names), *(f"metrics.{name}" for name in metrics)]
    lines = _BufferedWriter(write)
    lines.add(titles)
    for item, values in zip(items, params, strict=True):
        param_values = [_parameter_value(values, name) for name in names]
        metric_values = [_abbreviate(item.run.metrics.get(name)) for name in metrics]
        lines.add([*_property_values(item), *param_values, *metric_values])
    lines.flush()


def write_points(items: Iterable[Item], write: Write) -> None:
    """Write one row per logged metric value, in the order in which the values were logged."""
    lines = _BufferedWriter(write)
    lines.add(_POINT_COLUMNS)
    for item in items:
        with points_of(item) as series:
            _write_points(item, series, lines)
    lines.flush()


def _write_points(item: Item, series: Series, lines: _BufferedWriter) -> None:
    for metric in series.names(item.child):
        if metric.kind == "number":
            points = series.points(metric.name, item.child)
            lines.add_points((item.run.id, metric.name), zip(points.steps, points.times, points.values, strict=True))
        elif metric.kind == "row":
            for row in series.rows(metric.name, item.child):
                lines.add((item.run.id, metric.name, None, None, row))
        else:
            for entry in series.values(metric.name, item.child):
                lines.add((item.run.id, metric.name, entry.step, format_time(entry.time), entry.value))


def _property_values(item: Item) -> list[Any]:
    run, git = item.run, item.run.spec.git
    facts = {**item.record, "arguments": " ".join(run.spec.entry.arguments)}
    more = {
        "duration_seconds": run.duration,
        "parent_run_id": run.spec.parent,
        "commit": git.commit if git else None,
        "user": run.spec.user,
        "gpu": item.display.get("gpu"),
        "note": run.noted.note,
        "tags": "; ".join(run.tags),
    }
    return [*(facts.get(name) for name in _KEYS), *(more[name] for name in _EXTRA_KEYS)]


def _parameter_value(params: dict[str, Any], name: str) -> Any:
    """Return the value of a parameter. An option without a value is True if it was given."""
    return True if name in params and params[name] is None else params.get(name)


def _abbreviate(value: Any) -> Any:
    """Replace a long list or string with its type and size."""
    if isinstance(value, dict) and value.get("long") in ("list", "text"):
        return f"({value['long']} of {value.get('size')})"
    return value


class _BufferedWriter:
    """A buffer for lines, because writing a million points separately is slow."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._buffer = io.StringIO()
        self._csv = csv.writer(self._buffer, lineterminator="\n")
        self._count = 0

    def add(self, values: Iterable[Any]) -> None:
        self._csv.writerow([cell(value) for value in values])
        self._count += 1
        if self._count >= _BUFFERED_LINES:
            self.flush()

    def add_points(self, prefix_cells: Sequence[str], points: Iterable[tuple[int, float, float]]) -> None:
        """Write the points of one metric directly, three times as fast as with the CSV writer."""
        self.flush()
        self.add(prefix_cells)
        prefix = self._buffer.getvalue()[:-1]
        self._buffer.seek(0)
        self._buffer.truncate()
        format_timestamp = _TimestampFormatter()
        lines = []
        for step, when, value in points:
            text = repr(value) if value == value else "NaN"
            lines.append(f"{prefix},{'' if step == NO_STEP else step},{format_timestamp(when)},{text}\n")
            if len(lines) >= _BUFFERED_LINES:
                self._write("".join(lines))
                lines.clear()
        self._write("".join(lines))
        self._count = 0

    def flush(self) -> None:
        self._write(self._buffer.getvalue())
        self._buffer.seek(0)
        self._buffer.truncate()
        self._count = 0


class _TimestampFormatter:
    """A formatter for timestamps. It caches the last second, which most consecutive points share."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._text = ""

    def __call__(self, when: float) -> str:
        if not 0 <= when < _MAX_TIMESTAMP:
            return format_time(when)
        second, micro = divmod(round(when * 1_000_000), 1_000_000)
        if second != self._second:
            self._second, self._text = second, format_time(float(second))[:19]
        return f"{self._text}.{micro:06}+00:00"


def cell(value: Any) -> str:
    """Format a value as a cell: numbers unchanged, and strings escaped against formula evaluation."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return "NaN" if value != value else repr(value)
    text = value if isinstance(value, str) else json.dumps(strict_json(value), ensure_ascii=False)
    text = text.replace("\0", "\ufffd")
    first = text.lstrip(" ")[:1]
    return "'" + text if first and first in _FORMULA_STARTS and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and text.isprintable() and "_" not in text
    except ValueError:
        return False
