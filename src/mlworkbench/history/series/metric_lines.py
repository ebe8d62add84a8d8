"""Parse lines of metrics files into points. The files are untrusted, and invalid lines are skipped.

The format is described in remote/inrun/mlworkbench/_lines.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any, NamedTuple

from ..journal_parsing import MAX_LINE, as_float
from .points import NO_STEP, Points

Key = tuple[str, str]  # nested run ("" for the run itself) and metric name
Adder = tuple[Callable[[float], None], Callable[[float], None], Callable[[int], None]]

MAX_SERIES = 100_000
_MAX_NAME = 10 * 1024  # in bytes, as in the in-run library
_MAX_SPELLINGS = 20_000
_MAX_PATH = 64
_STEP_LIMIT = 2**63
_MAX_TIMESTAMP = 1e11  # seconds since 1970
_SPECIAL_FLOATS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}

# Most lines match the first alternative. The second matches all other lines and so preserves the order.
_LINE = re.compile(
    r'\{"n": "([^"\\\n]*(?:\\.[^"\\\n]*)*)", "v": ([-+.0-9eE]{1,40}), "t": ([0-9]{1,11}\.[0-9]{1,9})'
    r'(?:, "s": (-?[0-9]{1,18}))?(?:, "[io]": [][0-9, ]{1,80})?\}\n|([^\n]*)\n'
)
# Errors that decoding or traversing an untrusted line can raise.
_LINE_ERRORS = (ValueError, KeyError, TypeError, RecursionError, OverflowError)


class OtherValue(NamedTuple):
    """A non-numeric value, a piece of a long one, or a row."""

    kind: str  # "value", "row", or "same" for a nested run that is the run itself
    first: int  # 1 for the first piece of a value
    step: int | None
    time: float
    path: str | None  # position of a piece within the value, as JSON
    start: int
    body: str  # JSON


OtherValues = list[tuple[Key, OtherValue]]


class Lines:
    """Parsed lines of one file: numbers by series, and all other values in order."""

    def __init__(self, known: set[Key], owner: str = "") -> None:
        self._known = known
        self._owner = owner  # owner of lines without a run: "" or an external source
        self._adders: dict[str, Adder] = {}  # keyed by the name as spelled in the line
        self.points: dict[Key, Points] = {}
        self.others: OtherValues = []

    def parse(self, text: str) -> None:
        """Parse complete lines. The caller decoded invalid UTF-8 with ``surrogateescape``."""
        adders = self._adders
        for name, value, when, step, other in _LINE.findall(text):
            if not value:
                self._parse_other(other)
                continue
            adder = adders.get(name) or self._adder(name)
            try:
                number = float(value)
            except ValueError:
                continue  # not a number, such as 1-2
            add_value, add_time, add_step = adder
            add_value(number)
            add_time(float(when))
            add_step(int(step) if step else NO_STEP)

    def merge(self, points: Mapping[Key, Points], others: OtherValues) -> None:
        """Append the content of the next lines, which another process may have parsed."""
        for key, more in points.items():
            if self._accepts(key):
                self._points(key).extend(more)
        self.others += [(key, other) for key, other in others if self._accepts(key)]

    def _adder(self, spelling: str) -> Adder:
        if len(self._adders) >= _MAX_SPELLINGS:
            self._adders.clear()
        adder = _IGNORE_ALL
        try:
            key = self._key("", json.loads(f'"{spelling}"'))
        except _LINE_ERRORS:
            key = None
        if key is not None:
            points = self._points(key)
            adder = points.values.append, points.times.append, points.steps.append
        self._adders[spelling] = adder
        return adder

    def _points(self, key: Key) -> Points:
        points = self.points.get(key)
        if points is None:
            points = self.points[key] = Points()
        return points

    def _key(self, child: Any, name: Any) -> Key | None:
        if not isinstance(name, str) or not isinstance(child, str):
            return None
        key = sqlite_text(child or self._owner), sqlite_text(name)
        if max(len(part.encode("utf-8")) for part in key) > _MAX_NAME:
            return None
        return key if self._accepts(key) else None

    def _accepts(self, key: Key) -> bool:
        if key not in self._known and len(self._known) < MAX_SERIES:
            self._known.add(key)
        return key in self._known

    def _parse_other(self, text: str) -> None:
        if not text or len(text.encode("utf-8", "surrogateescape")) > MAX_LINE:
            return
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                return
            if "n" in line:
                value = _SPECIAL_FLOATS[line["v"]] if "f" in line else line["v"]
                self._add_value(self._key("", line["n"]), value, line, line.get("s"))
            elif isinstance(line.get("d"), dict):
                self._parse_record(line.get("k"), line["d"], line)
        except _LINE_ERRORS:
            return

    def _parse_record(self, kind: Any, data: dict[str, Any], line: dict[str, Any]) -> None:
        child = data.get("run")
        if kind == "child" and data.get("same") is True and isinstance(child, str):
            self._add_record("same", self._key(child, ""), "null", line)
        elif kind == "metric" and child:
            value = data["value"]
            value = decode_floats(value) if isinstance(value, dict) else value
            self._add_value(self._key(child, data["name"]), value, line, data.get("step"))
        elif kind == "row" and isinstance(data["row"], dict):
            self._add_record("row", self._key(child or "", data["name"]), json.dumps(data["row"]), line)

    def _add_record(self, kind: str, key: Key | None, body: str, line: dict[str, Any]) -> None:
        if key is not None:
            self.others.append((key, OtherValue(kind, 1, None, _timestamp(line.get("t")), None, 0, body)))

    def _add_value(self, key: Key | None, value: Any, line: dict[str, Any], raw_step: Any) -> None:
        if key is None:
            return
        when, step = _timestamp(line.get("t")), _step(raw_step)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            points, number = self._points(key), as_float(value)
            points.values.append(number)
            points.times.append(when)
            points.steps.append(NO_STEP if step is None else step)
            return
        path, start = None, 0
        if "of" in line:
            raw_path, start, _ = line["of"]
            if not _is_path(raw_path) or not _is_index(start) or not isinstance(value, (list, str)):
                return
            path = json.dumps(raw_path)
        first = path is None or (path == "[]" and start == 0)
        self.others.append((key, OtherValue("value", int(first), step, when, path, start, json.dumps(value))))


def sqlite_text(text: str) -> str:
    """Return a string that SQLite can store, using the same rules as the index."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def decode_floats(value: Any) -> Any:
    """Replace encoded floats that JSON cannot represent. Raises RecursionError if nested too deeply."""
    if isinstance(value, list):
        return [decode_floats(item) for item in value]
    if isinstance(value, dict):
        if len(value) == 1 and value.get("f") in tuple(_SPECIAL_FLOATS):
            return _SPECIAL_FLOATS[value["f"]]
        return {name: decode_floats(item) for name, item in value.items()}
    return value


def _timestamp(value: Any) -> float:
    is_valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MAX_TIMESTAMP
    return float(value) if is_valid else 0.0


def _step(value: Any) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not -_STEP_LIMIT < value < _STEP_LIMIT:
        return None
    return value


def _is_path(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MAX_PATH and all(map(_is_index, value))


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _ignore(_: float) -> None:
    pass


_IGNORE_ALL: Adder = (_ignore, _ignore, _ignore)
