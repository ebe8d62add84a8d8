"""What ``--sweep`` asks for, as values: axes, and the points of a grid or of a draw. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import product
from random import Random

from .errors import UsageError
from .model import Entry, JsonDict

MOST = 1000  # children, unless the user says how many
UTMOST = 5000
GRID, RANDOM = "grid", "random"
EXAMPLE = "for example: --sweep lr=0.1,0.01 depth=2..8"

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*=.*", re.DOTALL)
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"(log:)?({_NUMBER})\.\.({_NUMBER})(?:\.\.({_NUMBER}))?")
_LIKE_RANGE = re.compile(rf"log:|{_NUMBER}\.\.|[A-Za-z]\w*:{_NUMBER}\.\.")
_FEWER_IS_BETTER = re.compile(r"(^|[^a-z])(loss|err|error|mae|mse|rmse|mape|perplexity|ppl|nll|wer|cer|fid)([^a-z]|$)")
MORE_IS_BETTER = re.compile(r"acc|auc|f1|score|r2|iou|precision|recall|bleu|reward|return")
_MISSES = 1000  # draws in vain before a space counts as used up

Point = dict[str, str]


@dataclass(frozen=True)
class Steps:
    """``count`` numbers from ``low`` on."""

    low: Decimal
    step: Decimal
    count: int

    def at(self, index: int) -> str:
        return format((self.low + index * self.step).normalize(), "f")


@dataclass(frozen=True)
class Word:
    """A value as it was written."""

    text: str
    count: int = 1

    def at(self, index: int) -> str:
        return self.text


@dataclass(frozen=True)
class Span:
    """All numbers between two: to draw from, not to go through."""

    low: float
    high: float
    log: bool
    whole: bool

    def draw(self, chance: float) -> str:
        if self.log:
            # Whole numbers are rounded: each has its share on both sides, also the first and the last.
            low, high = (self.low - 0.5, self.high + 0.5) if self.whole else (self.low, self.high)
            value = math.exp(math.log(low) + chance * (math.log(high) - math.log(low)))
        else:
            value = self.low + chance * (self.high - self.low)
        if self.whole:
            return str(int(min(self.high, max(self.low, math.floor(value + 0.5)))))
        return f"{min(self.high, max(self.low, value)):.6g}"


@dataclass(frozen=True)
class Axis:
    """One name and what it may be."""

    name: str
    text: str
    parts: tuple[Steps | Word, ...] = ()
    span: Span | None = None

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)

    def at(self, index: int) -> str:
        for part in self.parts:
            if index < part.count:
                return part.at(index)
            index -= part.count
        raise IndexError(index)


@dataclass(frozen=True)
class Sweep:
    """All that a sweep is, but for its script."""

    axes: tuple[Axis, ...]
    way: str = GRID
    most: int | None = None
    parallel: int | None = None  # None: the target decides, by its GPUs
    seed: int | None = None
    metric: str | None = None
    goal: str | None = None  # "max" or "min"
    points: Sequence[Point] = field(default_factory=tuple)

    def to_json(self, children: Sequence[str]) -> JsonDict:
        return {
            "way": self.way,
            "axes": {axis.name: axis.text for axis in self.axes},
            "children": list(children),
            "parallel": self.parallel,
            "metric": self.metric,
            "goal": self.goal,
            "seed": self.seed,
        }


def read_axis(word: str) -> Axis:
    """``lr=0.1,0.01``, ``depth=2..8``, ``width=16..64..16``, ``lr=log:0.0001..0.1``."""
    name, equals, text = word.partition("=")
    if not equals or not WORD.fullmatch(word):
        bare = word.lstrip("-")
        hint = f"write --sweep {bare}" if bare != word and WORD.fullmatch(bare) else EXAMPLE
        raise UsageError(f"--sweep {word} has no values", hint)
    words = [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text)]
    if not text or "" in words:
        raise UsageError(f"--sweep {word}: a value is missing", EXAMPLE)
    parts: list[Steps | Word] = []
    for one in words:
        found = _read_range(name, one)
        if isinstance(found, Span):
            if len(words) > 1:
                raise UsageError(
                    f"--sweep {word}: {one} cannot be part of a list", f"write --sweep {name}={one} --random"
                )
            return Axis(name, text, span=found)
        parts.append(found or Word(one))
    axis = Axis(name, text, tuple(parts))
    if axis.count <= UTMOST:
        values = [axis.at(index) for index in range(axis.count)]
        twice = next((value for value in values if values.count(value) > 1), None) if len(words) > 1 else None
        if twice is not None:
            raise UsageError(f"--sweep {word}: duplicate value {twice}", "list each value once")
    return axis


def _read_range(name: str, text: str) -> Steps | Span | None:
    """None: it is a plain word."""
    found = _RANGE.fullmatch(text)
    if not found:
        if _LIKE_RANGE.match(text):
            raise UsageError(
                f"--sweep {name}={text} is not a range",
                "valid ranges: 2..8 and 2..8..2 (with a step); with --random also 0.1..0.5 and log:0.001..0.1",
            )
        return None
    log, ends, step = bool(found[1]), (found[2], found[3]), found[4]
    low, high = (Decimal(end) for end in ends)
    whole = all(re.fullmatch(r"[+-]?\d+", end) for end in ends)
    if high < low:
        raise UsageError(f"--sweep {name}={text}: the range ends below its start", f"write {ends[1]}..{ends[0]}")
    if log:
        if step or low <= 0:
            raise UsageError(f"--sweep {name}={text}: log: needs two numbers above 0", "for example: log:0.001..0.1")
        return Span(float(low), float(high), True, whole)
    if step is None and not whole:
        return Span(float(low), float(high), False, False)
    stride = Decimal(step or 1)
    if stride <= 0:
        raise UsageError(f"--sweep {name}={text}: the step must be above 0", "for example: 2..8..2")
    return Steps(low, stride, int((high - low) / stride) + 1)


def plan_sweep(sweep: Sweep) -> Sweep:
    """The sweep with its points, checked; ``seed`` must be given where they are drawn."""
    names = [axis.name for axis in sweep.axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--sweep has {twice} twice", f"list all values at once: {twice}=1,2,3")
    if sweep.most is not None and not 0 < sweep.most <= UTMOST:
        raise UsageError(f"--max-runs {sweep.most} is out of range", f"use a number from 1 to {UTMOST}")
    spans = [axis for axis in sweep.axes if axis.span]
    if sweep.way == GRID and spans:
        one = spans[0]
        raise UsageError(
            f"a grid cannot cover the continuous range {one.name}={one.text}",
            f"list the values, add a step ({one.text.removeprefix('log:')}..STEP), or add --random --max-runs 20",
        )
    if spans and sweep.most is None:
        raise UsageError(
            f"the range {spans[0].name}={spans[0].text} needs a number of runs", "for example: --max-runs 20"
        )
    total = math.prod(axis.count for axis in sweep.axes if not axis.span)
    if not spans and total > MOST and sweep.most is None:
        raise UsageError(
            f"the sweep has {total} runs; more than {MOST} need --max-runs", "add --max-runs N, or --random"
        )
    points = _draw(sweep, total) if sweep.way == RANDOM else _grid(sweep, total)
    return replace(sweep, points=points)


def _grid(sweep: Sweep, total: int) -> list[Point]:
    """The last axis changes with every run."""
    count = min(total, sweep.most or total)
    found: list[Point] = []
    for places in product(*(range(min(axis.count, UTMOST)) for axis in sweep.axes)):
        if len(found) == count:
            break
        found.append({axis.name: axis.at(place) for axis, place in zip(sweep.axes, places, strict=True)})
    return found


def _draw(sweep: Sweep, total: int) -> list[Point]:
    """Only ``random()`` is asked: its numbers are the same in every version of Python."""
    chance = Random(sweep.seed).random
    if all(axis.span is None for axis in sweep.axes):
        return _shuffle(sweep, total, chance)
    seen: dict[tuple[str, ...], None] = {}
    misses = 0
    while len(seen) < (sweep.most or MOST) and misses < _MISSES:
        values = tuple(
            axis.span.draw(chance()) if axis.span else axis.at(int(chance() * axis.count)) for axis in sweep.axes
        )
        misses = misses + 1 if values in seen else 0
        seen[values] = None
    return [{axis.name: value for axis, value in zip(sweep.axes, values, strict=True)} for values in seen]


def _shuffle(sweep: Sweep, total: int, chance: object) -> list[Point]:
    """Points of a grid in a drawn order, none twice, without making all of them."""
    moved: dict[int, int] = {}
    found = []
    for place in range(min(total, sweep.most or total)):
        other = place + int(chance() * (total - place))  # type: ignore[operator]
        index = moved.get(other, other)
        moved[other] = moved.get(place, place)
        point: Point = {}
        for axis in reversed(sweep.axes):
            index, rest = divmod(index, axis.count)
            point[axis.name] = axis.at(rest)
        found.append({axis.name: point[axis.name] for axis in sweep.axes})
    return found


def entry_of(entry: Entry, point: Mapping[str, str]) -> Entry:
    """The script with the values of one child: where ``{name}`` stands, else behind the other arguments."""
    used: set[str] = set()

    def fill(found: re.Match[str]) -> str:
        used.add(found[1])
        return point[found[1]]

    places = re.compile("\\{(" + "|".join(map(re.escape, point)) + ")\\}")
    words = [places.sub(fill, word) for word in entry.arguments]
    for name, value in point.items():
        if name in used:
            continue
        if any(word == f"--{name}" or word.startswith(f"--{name}=") for word in entry.arguments):
            raise UsageError(
                f"{name} is both swept and passed as --{name}", f"remove one of them, or write --{name} {{{name}}}"
            )
        words += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
    return replace(entry, arguments=tuple(words))


def name_of(point: Mapping[str, str]) -> str:
    """``lr=0.1 depth=2``."""
    return " ".join(f"{name}={value}" for name, value in point.items())


def suggests(metric: str) -> bool:
    """Whether its name tells which way is better at all."""
    return bool(MORE_IS_BETTER.search(metric.lower()) or _FEWER_IS_BETTER.search(metric.lower()))


def goal_of(metric: str) -> str:
    """Whether more of it is better, by its name."""
    return "min" if _FEWER_IS_BETTER.search(metric.lower()) else "max"
