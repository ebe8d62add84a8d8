"""Lines of a metrics file → points. Every byte comes from a target and is hostile input: what is odd is passed over.

What a line looks like is told in remote/inrun/mlworkbench/_lines.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any, NamedTuple

from ..reading import LINE, as_float
from .points import NO_STEP, Points

Key = tuple[str, str]  # the child inside ("" for the run itself), and the name
Adder = tuple[Callable[[float], None], Callable[[float], None], Callable[[int], None]]

MOST_SERIES = 100_000
_LONGEST_NAME = 10 * 1024  # bytes, as the in-run library has it
_MOST_SPELLINGS = 20_000
_DEEPEST_WAY = 64
_STEP_END = 2**63
_LATEST = 1e11  # seconds since 1970
_WORDS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}

# Nearly all lines are like the first alternative. The second is any other line, so that none is found out of turn.
_LINE = re.compile(
    r'\{"n": "([^"\\\n]*(?:\\.[^"\\\n]*)*)", "v": ([-+.0-9eE]{1,40}), "t": ([0-9]{1,11}\.[0-9]{1,9})'
    r'(?:, "s": (-?[0-9]{1,18}))?(?:, "[io]": [][0-9, ]{1,80})?\}\n|([^\n]*)\n'
)
# What decoding a hostile line, or going through what it holds, can raise.
_ODD = (ValueError, KeyError, TypeError, RecursionError, OverflowError)


class Other(NamedTuple):
    """A value that is no number, or a piece of a long one; or a row."""

    kind: str  # "value", "row", or "same" for a child that is the run itself
    first: int  # 1 where it begins a value
    step: int | None
    time: float
    way: str | None  # of a piece: where in the value it belongs, as JSON
    start: int
    body: str  # JSON


Others = list[tuple[Key, Other]]


class Lines:
    """What was found in lines of one file: numbers by their series, and all other values in order."""

    def __init__(self, known: set[Key]) -> None:
        self._known = known
        self._adders: dict[str, Adder] = {}  # by the name as it is spelt in the line
        self.points: dict[Key, Points] = {}
        self.others: Others = []

    def take(self, text: str) -> None:
        """Whole lines; what is no UTF-8 has been decoded with ``surrogateescape``."""
        adders = self._adders
        for name, value, when, step, other in _LINE.findall(text):
            if not value:
                self._take_other(other)
                continue
            adder = adders.get(name) or self._adder(name)
            try:
                number = float(value)
            except ValueError:
                continue  # such as 1-2
            add_value, add_time, add_step = adder
            add_value(number)
            add_time(float(when))
            add_step(int(step) if step else NO_STEP)

    def absorb(self, points: Mapping[Key, Points], others: Others) -> None:
        """What was found in the lines that follow, perhaps by another process."""
        for key, more in points.items():
            if self._may_know(key):
                self._points(key).extend(more)
        self.others += [(key, other) for key, other in others if self._may_know(key)]

    def _adder(self, spelt: str) -> Adder:
        if len(self._adders) >= _MOST_SPELLINGS:
            self._adders.clear()
        adder = _NOBODY
        try:
            key = self._key("", json.loads(f'"{spelt}"'))
        except _ODD:
            key = None
        if key is not None:
            points = self._points(key)
            adder = points.values.append, points.times.append, points.steps.append
        self._adders[spelt] = adder
        return adder

    def _points(self, key: Key) -> Points:
        points = self.points.get(key)
        if points is None:
            points = self.points[key] = Points()
        return points

    def _key(self, child: Any, name: Any) -> Key | None:
        if not isinstance(name, str) or not isinstance(child, str):
            return None
        key = tidy(child), tidy(name)
        if max(len(part.encode("utf-8")) for part in key) > _LONGEST_NAME:
            return None
        return key if self._may_know(key) else None

    def _may_know(self, key: Key) -> bool:
        if key not in self._known and len(self._known) < MOST_SERIES:
            self._known.add(key)
        return key in self._known

    def _take_other(self, text: str) -> None:
        if not text or len(text.encode("utf-8", "surrogateescape")) > LINE:
            return
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                return
            if "n" in line:
                value = _WORDS[line["v"]] if "f" in line else line["v"]
                self._take_value(self._key("", line["n"]), value, line, line.get("s"))
            elif isinstance(line.get("d"), dict):
                self._take_record(line.get("k"), line["d"], line)
        except _ODD:
            return

    def _take_record(self, kind: Any, data: dict[str, Any], line: dict[str, Any]) -> None:
        child = data.get("run")
        if kind == "child" and data.get("same") is True and isinstance(child, str):
            self._take_note("same", self._key(child, ""), "null", line)
        elif kind == "metric" and child:
            value = data["value"]
            value = decoded(value) if isinstance(value, dict) else value
            self._take_value(self._key(child, data["name"]), value, line, data.get("step"))
        elif kind == "row" and isinstance(data["row"], dict):
            self._take_note("row", self._key(child or "", data["name"]), json.dumps(data["row"]), line)

    def _take_note(self, kind: str, key: Key | None, body: str, line: dict[str, Any]) -> None:
        if key is not None:
            self.others.append((key, Other(kind, 1, None, _moment(line.get("t")), None, 0, body)))

    def _take_value(self, key: Key | None, value: Any, line: dict[str, Any], told_step: Any) -> None:
        if key is None:
            return
        when, step = _moment(line.get("t")), _step(told_step)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            points, number = self._points(key), as_float(value)
            points.values.append(number)
            points.times.append(when)
            points.steps.append(NO_STEP if step is None else step)
            return
        way, start = None, 0
        if "of" in line:
            told_way, start, _ = line["of"]
            if not _is_way(told_way) or not _is_place(start) or not isinstance(value, (list, str)):
                return
            way = json.dumps(told_way)
        first = way is None or (way == "[]" and start == 0)
        self.others.append((key, Other("value", int(first), step, when, way, start, json.dumps(value))))


def tidy(text: str) -> str:
    """As the index has names: what SQLite can hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def decoded(value: Any) -> Any:
    """With the floats that JSON has no number for. Raises RecursionError for what is nested too deep."""
    if isinstance(value, list):
        return [decoded(one) for one in value]
    if isinstance(value, dict):
        if len(value) == 1 and value.get("f") in tuple(_WORDS):
            return _WORDS[value["f"]]
        return {name: decoded(one) for name, one in value.items()}
    return value


def _moment(told: Any) -> float:
    sound = isinstance(told, (int, float)) and not isinstance(told, bool) and 0 <= told < _LATEST
    return float(told) if sound else 0.0


def _step(told: Any) -> int | None:
    if not isinstance(told, int) or isinstance(told, bool) or not -_STEP_END < told < _STEP_END:
        return None
    return told


def _is_way(told: Any) -> bool:
    return isinstance(told, list) and len(told) <= _DEEPEST_WAY and all(map(_is_place, told))


def _is_place(told: Any) -> bool:
    return isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 2**53


def _ignore(_: float) -> None:
    pass


_NOBODY: Adder = (_ignore, _ignore, _ignore)
