"""What a script told → the run: the latest of each metric and what its series amounts to, parameters, tags, files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from ..model import JsonDict, Run, Span
from .reading import BAD, as_float, value_of, whole

MOST_NAMES = 100_000
MOST_KEPT = 64 * 1024 * 1024  # characters of all names and values of a run, those of runs inside it included
MOST_CHILDREN = 5_000
_MOST = 10_000  # parameters, tags, files
_LONGEST = 6_000  # characters of one of them, as in MLflow
_LONGEST_NAME = 1_000
_NUMBERS = (int, float, bool)
_BIG = 1 << 63
_SAID = ("name", "status", "parent")
_MOMENTS = ("started", "ended")
_ENTRY = 100  # characters that each entry costs beside its name and value: the span of a metric, separators


class _Room:
    """How much more of a run can be kept, and how much was left out because there was none."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._free: int | None = None  # counted when first needed: most lines give a known name another number
        self.left_out = dict(run.over_limit)

    def take(self, size: int, kind: str) -> bool:
        if self._free is None:
            self._free = MOST_KEPT - _size_of(self._run)
        if size > 0 and size > self._free:
            self.refuse(kind)
            return False
        self._free -= size
        return True

    def refuse(self, kind: str, count: int = 1) -> None:
        self.left_out[kind] = self.left_out.get(kind, 0) + count


class Tally:
    """One run while lines are taken in.

    Of a number what was told last counts, by its time, whatever the order of files; of texts, parameters and tags,
    which have no time here, what is read last.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._room = _Room(run)
        self._own = _Told(self._room, run.metrics, run.spans, run.params, run.told_tags, run.files)
        self._children = {name: _Child(self._room, told) for name, told in run.children.items()}
        self._touched = False

    def leave_out(self, kind: str, count: int) -> None:
        """Record that so much of the run is not kept."""
        if count:
            self._touched = True
            self._room.refuse(kind, count)

    def take(self, lines: Iterable[JsonDict]) -> None:
        """Take in what whole lines say; those that make no sense are passed over."""
        point = self._own.point
        for line in lines:
            self._touched = True
            try:
                if "n" in line:
                    point(line["n"], line, line.get("t", 0.0))
                elif "k" in line:
                    self._record(line["k"], line["d"], line.get("t", 0.0))
            except BAD:
                continue

    def run(self) -> Run:
        """The run with all that was taken in."""
        if not self._touched:
            return self._run
        own = self._own
        return replace(
            self._run,
            metrics=own.metrics,
            spans=own.spans,
            params=own.params,
            told_tags=own.tags,
            files=own.files,
            children={name: child.to_json() for name, child in self._children.items()},
            over_limit=self._room.left_out,
        )

    def _record(self, kind: Any, data: JsonDict, when: Any) -> None:
        told = self._whose(data.get("run"))
        if told is None:
            self._room.refuse("records")
            return
        if kind == "metric":
            told.point(data["name"], {"v": data["value"], "s": data.get("step")}, when)
        elif kind == "row":
            for column, value in data["row"].items():
                told.point(f"{data['name']}.{column}", {"v": value}, when)
        elif kind == "child" and isinstance(told, _Child):
            told.say(data)
        elif kind == "ended" and isinstance(told, _Child):
            told.say({"status": data["status"], "ended": when})
        elif kind in ("param", "tag", "file", "dataset"):
            getattr(told, kind)(data)

    def _whose(self, name: Any) -> _Told | None:
        if name is None:
            return self._own
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            return None
        known = self._children.get(name)
        if known is None and len(self._children) < MOST_CHILDREN:
            known = self._children[name] = _Child(self._room, {})
        return known


class _Told:
    def __init__(
        self,
        room: _Room,
        metrics: Mapping[str, Any],
        spans: Mapping[str, Span],
        params: Mapping[str, Any],
        tags: Mapping[str, Any],
        files: Mapping[str, JsonDict],
    ) -> None:
        self._room = room
        self.metrics = dict(metrics)
        self.spans = dict(spans)
        self.params = dict(params)
        self.tags = dict(tags)
        self.files = dict(files)

    def point(self, name: Any, line: JsonDict, when: float) -> None:
        if type(name) is not str:
            name = str(name)
        span = self.spans.get(name)
        if "of" in line:
            self._piece(name, line)
            return
        value = value_of(line)
        if type(value) in _NUMBERS:
            step = line.get("s")
            moment = float(when)
            if span is not None or self._has_room(self.metrics, name, 0, MOST_NAMES, "metrics"):
                self._number(name, value, moment, step if type(step) is int else None, span)
        elif self._has_room(self.metrics, name, value, MOST_NAMES, "metrics"):
            self.metrics[name] = value
            self.spans.pop(name, None)

    def _has_room(self, kept: Mapping[str, Any], name: str, value: Any, most: int, kind: str) -> bool:
        """Whether the value can be kept under this name; if not, it counts as left out."""
        if name in kept:
            return self._room.take(_size(value) - _size(kept[name]), kind)
        if len(kept) < most and len(name) <= _LONGEST_NAME:
            return self._room.take(_cost(name, value), kind)
        self._room.refuse(kind)
        return False

    def _number(self, name: str, value: Any, when: float, step: int | None, span: Span | None) -> None:
        if type(value) is int and not -_BIG < value < _BIG:
            value = as_float(value)
        finite = value if isfinite(value) else None
        if span is None:
            self.spans[name] = Span(1, finite, finite, when, step)
            self.metrics[name] = value
            return
        count, least, most, last, known = span
        if finite is not None:
            least = finite if least is None or finite < least else least
            most = finite if most is None or finite > most else most
        if when >= last:
            self.metrics[name] = value
            last, known = when, step
        self.spans[name] = Span(count + 1, least, most, last, known)

    def _piece(self, name: str, line: JsonDict) -> None:
        """Of a long value only what it is; the whole is in the run's series."""
        way, start, total = line["of"]
        if way == [] and start == 0 and isinstance(total, int):
            value = {"long": "text" if isinstance(line["v"], str) else "list", "size": total}
            if self._has_room(self.metrics, name, value, MOST_NAMES, "metrics"):
                self.metrics[name] = value
                self.spans.pop(name, None)

    def param(self, data: JsonDict) -> None:
        value = data["value"]
        self._keep(self.params, data["name"], "None" if value is None else value)  # None: a switch, as --verbose

    def tag(self, data: JsonDict) -> None:
        if data.get("value") is None:
            self.tags.pop(str(data["name"]), None)
        else:
            self._keep(self.tags, data["name"], data["value"])

    def dataset(self, data: JsonDict) -> None:
        words = [str(data[name]) for name in ("digest", "context") if data.get(name)]
        self._keep(self.tags, f"mlflow.dataset.{data['name']}", " ".join(words))

    def file(self, data: JsonDict) -> None:
        told = {"as": str(data["as"])[:20]}
        if isinstance(data.get("name"), str):
            told["name"] = data["name"][:_LONGEST_NAME]
        step = data.get("step")
        self._keep(self.files, data["path"], {**told, "step": step} if type(step) is int else told)

    def _keep(self, kept: dict[str, Any], name: Any, value: Any) -> None:
        name, value = str(name), whole(value)
        value = value[:_LONGEST] if isinstance(value, str) else value
        if self._has_room(kept, name, value, _MOST, "records"):
            kept[name] = value


class _Child(_Told):
    """A run inside this one, as it is kept in the run's record."""

    def __init__(self, room: _Room, told: JsonDict) -> None:
        spans = {name: Span(*span) for name, span in told.get("spans", {}).items()}
        metrics, params, tags, files = (told.get(name, {}) for name in ("metrics", "params", "tags", "files"))
        super().__init__(room, metrics, spans, params, tags, files)
        self._facts = {name: told[name] for name in (*_SAID, *_MOMENTS, "same") if name in told}

    def say(self, data: JsonDict) -> None:
        for name in _SAID:
            if isinstance(data.get(name), str):
                self._facts[name] = data[name][:_LONGEST_NAME]
        for name in _MOMENTS:
            if isinstance(data.get(name), (int, float)) and 0 <= data[name] < 1e11:
                self._facts[name] = float(data[name])
        if data.get("same") is True:
            self._facts["same"] = True

    def to_json(self) -> JsonDict:
        # Lists, as they come back from the index: else every child looks changed after each look at one of them.
        spans = {name: list(span) for name, span in self.spans.items()}
        told = {"metrics": self.metrics, "spans": spans, "params": self.params, "tags": self.tags}
        return {**self._facts, **{name: kept for name, kept in (*told.items(), ("files", self.files)) if kept}}


def _size_of(run: Run) -> int:
    own = (run.metrics, run.params, run.told_tags, run.files)
    inside = [told.get(name, {}) for told in run.children.values() for name in ("metrics", "params", "tags", "files")]
    return sum(_cost(name, value) for kept in (*own, *inside) for name, value in kept.items())


def _cost(name: str, value: Any) -> int:
    return 2 * len(name) + _size(value) + _ENTRY


def _size(value: Any) -> int:
    """About as many characters as the value takes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value)) + len(value)
    if isinstance(value, dict):
        return sum(len(name) + _size(one) for name, one in value.items()) + len(value)
    return 8 + value.bit_length() // 3 if isinstance(value, int) else 8
