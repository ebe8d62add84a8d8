"""Axes of parameter sweeps, and the points of a grid or of random draws, without side effects."""

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

DEFAULT_MAX_RUNS = 1000  # default maximum number of children
MAX_RUNS = 5000
GRID, RANDOM = "grid", "random"
EXAMPLE = "for example: --sweep lr=0.1,0.01 depth=2..8"

AXIS_DEFINITION = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*=.*", re.DOTALL)
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"(log:)?({_NUMBER})\.\.({_NUMBER})(?:\.\.({_NUMBER}))?")
_LIKE_RANGE = re.compile(rf"log:|{_NUMBER}\.\.|[A-Za-z]\w*:{_NUMBER}\.\.")
_MAX_DUPLICATES = 1000  # successive duplicate draws after which the space counts as exhausted

Point = dict[str, str]


@dataclass(frozen=True)
class Steps:
    """A sequence of ``count`` numbers starting at ``low``."""

    low: Decimal
    step: Decimal
    count: int

    def at(self, index: int) -> str:
        return format((self.low + index * self.step).normalize(), "f")


@dataclass(frozen=True)
class Word:
    """A value as the user typed it."""

    text: str
    count: int = 1

    def at(self, index: int) -> str:
        return self.text


@dataclass(frozen=True)
class Span:
    """A continuous range, which supports random draws but not grids."""

    low: float
    high: float
    log: bool
    whole: bool

    def draw(self, chance: float) -> str:
        if self.log:
            # Extend an integer range by 0.5, so that rounding does not make its ends less likely.
            low, high = (self.low - 0.5, self.high + 0.5) if self.whole else (self.low, self.high)
            value = math.exp(math.log(low) + chance * (math.log(high) - math.log(low)))
        else:
            value = self.low + chance * (self.high - self.low)
        if self.whole:
            return str(int(min(self.high, max(self.low, math.floor(value + 0.5)))))
        return f"{min(self.high, max(self.low, value)):.6g}"


@dataclass(frozen=True)
class Axis:
    """A parameter name and its values."""

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
    """A sweep without its script."""

    axes: tuple[Axis, ...]
    way: str = GRID
    most: int | None = None
    parallel: int | None = None  # None: the target decides by its number of GPUs
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


def read_axis(definition: str) -> Axis:
    """Parse ``lr=0.1,0.01``, ``depth=2..8``, ``width=16..64..16``, or ``lr=log:0.0001..0.1``."""
    name, equals, text = definition.partition("=")
    if not equals or not AXIS_DEFINITION.fullmatch(definition):
        bare = definition.lstrip("-")
        hint = f"write --sweep {bare}" if bare != definition and AXIS_DEFINITION.fullmatch(bare) else EXAMPLE
        raise UsageError(f"--sweep {definition} has no values", hint)
    words = [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text)]
    if not text or "" in words:
        raise UsageError(f"--sweep {definition}: a value is missing", EXAMPLE)
    parts: list[Steps | Word] = []
    for one in words:
        span = _read_range(name, one)
        if isinstance(span, Span):
            if len(words) > 1:
                raise UsageError(
                    f"--sweep {definition}: {one} cannot be part of a list", f"write --sweep {name}={one} --random"
                )
            return Axis(name, text, span=span)
        parts.append(span or Word(one))
    axis = Axis(name, text, tuple(parts))
    if axis.count <= MAX_RUNS:
        values = [axis.at(index) for index in range(axis.count)]
        twice = next((value for value in values if values.count(value) > 1), None) if len(words) > 1 else None
        if twice is not None:
            raise UsageError(f"--sweep {definition}: duplicate value {twice}", "list each value once")
    return axis


def _read_range(name: str, text: str) -> Steps | Span | None:
    """Parse a range; None if the string is a plain value."""
    match = _RANGE.fullmatch(text)
    if not match:
        if _LIKE_RANGE.match(text):
            raise UsageError(
                f"--sweep {name}={text} is not a range",
                "valid ranges: 2..8 and 2..8..2 (with a step); with --random also 0.1..0.5 and log:0.001..0.1",
            )
        return None
    log, ends, step = bool(match[1]), (match[2], match[3]), match[4]
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
    """Return the validated sweep with its points. ``seed`` is required for random draws."""
    names = [axis.name for axis in sweep.axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--sweep has {twice} twice", f"list all values at once: {twice}=1,2,3")
    if sweep.most is not None and not 0 < sweep.most <= MAX_RUNS:
        raise UsageError(f"--max-runs {sweep.most} is out of range", f"use a number from 1 to {MAX_RUNS}")
    spans = [axis for axis in sweep.axes if axis.span]
    if sweep.way == GRID and spans:
        span = spans[0]
        raise UsageError(
            f"a grid cannot cover the continuous range {span.name}={span.text}",
            f"list the values, add a step ({span.text.removeprefix('log:')}..STEP), or add --random --max-runs 20",
        )
    if spans and sweep.most is None:
        raise UsageError(
            f"the range {spans[0].name}={spans[0].text} needs a number of runs", "for example: --max-runs 20"
        )
    total = math.prod(axis.count for axis in sweep.axes if not axis.span)
    if not spans and total > DEFAULT_MAX_RUNS and sweep.most is None:
        raise UsageError(
            f"the sweep has {total} runs; more than {DEFAULT_MAX_RUNS} need --max-runs", "add --max-runs N, or --random"
        )
    points = _draw(sweep, total) if sweep.way == RANDOM else _grid(sweep, total)
    return replace(sweep, points=points)


def _grid(sweep: Sweep, total: int) -> list[Point]:
    """Return the points of a grid; the last axis varies fastest."""
    count = min(total, sweep.most or total)
    points: list[Point] = []
    for places in product(*(range(min(axis.count, MAX_RUNS)) for axis in sweep.axes)):
        if len(points) == count:
            break
        points.append({axis.name: axis.at(place) for axis, place in zip(sweep.axes, places, strict=True)})
    return points


def _draw(sweep: Sweep, total: int) -> list[Point]:
    """Draw points using only ``random()``, which yields the same numbers in every Python version."""
    chance = Random(sweep.seed).random
    if all(axis.span is None for axis in sweep.axes):
        return _shuffle(sweep, total, chance)
    drawn: dict[tuple[str, ...], None] = {}
    misses = 0
    while len(drawn) < (sweep.most or DEFAULT_MAX_RUNS) and misses < _MAX_DUPLICATES:
        values = tuple(
            axis.span.draw(chance()) if axis.span else axis.at(int(chance() * axis.count)) for axis in sweep.axes
        )
        misses = misses + 1 if values in drawn else 0
        drawn[values] = None
    return [{axis.name: value for axis, value in zip(sweep.axes, values, strict=True)} for values in drawn]


def _shuffle(sweep: Sweep, total: int, chance: object) -> list[Point]:
    """Draw distinct grid points in random order, without creating the whole grid."""
    moved: dict[int, int] = {}
    points = []
    for place in range(min(total, sweep.most or total)):
        other = place + int(chance() * (total - place))  # type: ignore[operator]
        index = moved.get(other, other)
        moved[other] = moved.get(place, place)
        point: Point = {}
        for axis in reversed(sweep.axes):
            index, rest = divmod(index, axis.count)
            point[axis.name] = axis.at(rest)
        points.append({axis.name: point[axis.name] for axis in sweep.axes})
    return points


def entry_of(entry: Entry, point: Mapping[str, str]) -> Entry:
    """Return the script with the values of one child.

    Values replace ``{name}`` in the arguments or are appended as further arguments.
    """
    used: set[str] = set()

    def fill(match: re.Match[str]) -> str:
        used.add(match[1])
        return point[match[1]]

    places = re.compile("\\{(" + "|".join(map(re.escape, point)) + ")\\}")
    arguments = [places.sub(fill, argument) for argument in entry.arguments]
    for name, value in point.items():
        if name in used:
            continue
        if any(argument == f"--{name}" or argument.startswith(f"--{name}=") for argument in entry.arguments):
            raise UsageError(
                f"{name} is both swept and passed as --{name}", f"remove one of them, or write --{name} {{{name}}}"
            )
        arguments += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
    return replace(entry, arguments=tuple(arguments))


def name_of(point: Mapping[str, str]) -> str:
    """Return a name such as ``lr=0.1 depth=2``."""
    return " ".join(f"{name}={value}" for name, value in point.items())
