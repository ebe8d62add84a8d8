"""Runs, or their points, as comma-separated values. A text never becomes a formula of a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..history.parameters import of_run
from ..history.series.series import NO_STEP, Series
from .material import Item, moment, plain_value, points_of

Write = Callable[[str], None]

_KEYS = (
    "run_id run_number name status ending cause exit_code script_name arguments target run_configuration project"
    " created_utc start_time_utc end_time_utc"
).split()
_MORE = ("duration_seconds", "parent_run_id", "commit", "user", "gpu", "note", "tags")
_POINTS = ("run_id", "metric", "step", "time_utc", "value")
_FORMULA = "=+-@\t\r\n"
_AT_ONCE = 1000  # lines
_LATEST = 250_000_000_000.0  # seconds: within the years of four digits


def write_runs(items: Sequence[Item], write: Write) -> None:
    """One row for each run: its keys, ``params.…`` and ``metrics.…``."""
    params = [of_run(item.run) for item in items]
    names = dict.fromkeys(name for one in params for name in one)
    metrics = dict.fromkeys(name for item in items for name in item.run.metrics)
    titles = [*_KEYS, *_MORE, *(f"params.{name}" for name in names), *(f"metrics.{name}" for name in metrics)]
    lines = _Lines(write)
    lines.add(titles)
    for item, told in zip(items, params, strict=True):
        given = [_switch(told, name) for name in names]
        measured = [_short(item.run.metrics.get(name)) for name in metrics]
        lines.add([*_own(item), *given, *measured])
    lines.flush()


def write_points(items: Iterable[Item], write: Write) -> None:
    """One row for each value of each name, in the order in which they were logged."""
    lines = _Lines(write)
    lines.add(_POINTS)
    for item in items:
        with points_of(item) as series:
            _points(item, series, lines)
    lines.flush()


def _points(item: Item, series: Series, lines: _Lines) -> None:
    for known in series.names(item.child):
        if known.kind == "number":
            points = series.points(known.name, item.child)
            lines.add_points((item.run.id, known.name), zip(points.steps, points.times, points.values, strict=True))
        elif known.kind == "row":
            for row in series.rows(known.name, item.child):
                lines.add((item.run.id, known.name, None, None, row))
        else:
            for one in series.values(known.name, item.child):
                lines.add((item.run.id, known.name, one.step, moment(one.time), one.value))


def _own(item: Item) -> list[Any]:
    run, git = item.run, item.run.spec.git
    facts = {**item.record, "arguments": " ".join(run.spec.entry.arguments)}
    more = {
        "duration_seconds": run.duration,
        "parent_run_id": run.spec.parent,
        "commit": git.commit if git else None,
        "user": run.spec.user,
        "gpu": item.words.get("gpu"),
        "note": run.noted.note,
        "tags": "; ".join(run.tags),
    }
    return [*(facts.get(name) for name in _KEYS), *(more[name] for name in _MORE)]


def _switch(told: dict[str, Any], name: str) -> Any:
    """An option without a value is true where it was given."""
    return True if name in told and told[name] is None else told.get(name)


def _short(value: Any) -> Any:
    """Of a long list or text only what it is."""
    if isinstance(value, dict) and value.get("long") in ("list", "text"):
        return f"({value['long']} of {value.get('size')})"
    return value


class _Lines:
    """Many lines at a time: a million points are written one by one otherwise."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._held = io.StringIO()
        self._csv = csv.writer(self._held, lineterminator="\n")
        self._count = 0

    def add(self, values: Iterable[Any]) -> None:
        self._csv.writerow([cell(value) for value in values])
        self._count += 1
        if self._count >= _AT_ONCE:
            self.flush()

    def add_points(self, whose: Sequence[str], points: Iterable[tuple[int, float, float]]) -> None:
        """Numbers need no quotes: without asking for them, a million points take a third of the time."""
        self.flush()
        self.add(whose)
        begin = self._held.getvalue()[:-1]
        self._held.seek(0)
        self._held.truncate()
        clock = _Clock()
        lines = []
        for step, when, value in points:
            text = repr(value) if value == value else "NaN"
            lines.append(f"{begin},{'' if step == NO_STEP else step},{clock(when)},{text}\n")
            if len(lines) >= _AT_ONCE:
                self._write("".join(lines))
                lines.clear()
        self._write("".join(lines))
        self._count = 0

    def flush(self) -> None:
        self._write(self._held.getvalue())
        self._held.seek(0)
        self._held.truncate()
        self._count = 0


class _Clock:
    """Moments as texts; most share their second with the one before."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._text = ""

    def __call__(self, when: float) -> str:
        if not 0 <= when < _LATEST:
            return moment(when)
        second, micro = divmod(round(when * 1_000_000), 1_000_000)
        if second != self._second:
            self._second, self._text = second, moment(float(second))[:19]
        return f"{self._text}.{micro:06}+00:00"


def cell(value: Any) -> str:
    """A value as a cell: numbers as they are, texts so that no spreadsheet computes them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return "NaN" if value != value else repr(value)
    text = value if isinstance(value, str) else json.dumps(plain_value(value), ensure_ascii=False)
    text = text.replace("\0", "\ufffd")
    first = text.lstrip(" ")[:1]
    return "'" + text if first and first in _FORMULA and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and text.isprintable() and "_" not in text
    except ValueError:
        return False
