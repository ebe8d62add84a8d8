"""Curves as text: a line of blocks beside a name, or several over each other with their axes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import log10

from ..history.series.drawing import Column
from ..report.plain import plain

Dots = set[tuple[int, int]]  # (column, row), the latter counted from below
Cell = tuple[str, int]  # a sign, and which curve it belongs to

_BLOCKS = "▁▂▃▄▅▆▇█"
_LEVELS = "_.:-=+*#"  # where there are no blocks
_BRAILLE = 0x2800
_DOTS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))  # bits of a Braille sign, from below
_MARKS = "*+xo#@%&abcdefghijklmnpqrstuvwyz"
_COLOURS = (36, 33, 35, 32, 31, 34, 96, 93, 95, 92, 91, 94)
_EMPTY: Cell = (" ", -1)
_LEAST_WIDTH, _LEAST_HEIGHT = 20, 3
_ROWS_OF_LABEL = 4


def has_blocks(encoding: str) -> bool:
    """Whether these pictures can be shown in this encoding; else ask for ``ascii``."""
    try:
        f"{_BLOCKS}{chr(_BRAILLE)}│└─".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def sparkline(columns: Sequence[Column], width: int, ascii: bool = False, log: bool = False) -> str:
    """``▁▂▅█``: a character for each column, by its latest value; the newest ``width`` of them."""
    scale = _Scale([one.last for one in columns], log)
    signs = _LEVELS if ascii else _BLOCKS
    values = [one.last for one in columns if scale.shows(one.last)]
    values = values[max(0, len(values) - max(0, width)) :]
    if scale.flat:
        return signs[len(signs) // 2 - 1] * len(values)
    return "".join(signs[min(int(scale.share(value) * len(signs)), len(signs) - 1)] for value in values)


def chart(
    curves: Mapping[str, Sequence[Column]],
    width: int,
    height: int,
    *,
    log: bool = False,
    ascii: bool = False,
    colour: bool = False,
    x: str = "",
) -> list[str]:
    """The curves over each other, ``height`` rows high, then the axis and what is what; no line longer than ``width``.

    Dots of a Braille sign, where there is one curve or where colours tell them apart; else each has its own mark.
    ``log``: the y axis is logarithmic, and what is not above 0 is not shown. ``x``: the name of the x axis.
    """
    width, height = max(width, _LEAST_WIDTH), max(height, _LEAST_HEIGHT)
    kept = {name: columns for name, columns in curves.items() if columns}
    ends = [end for columns in kept.values() for one in columns for end in (one.lo, one.hi)]
    scale = _Scale(ends, log)
    if not scale.any:
        return ["no points to draw"]
    braille = not ascii and (colour or len(kept) == 1)
    labels = _labels(scale, height, 4 if braille else 1)
    gutter = max(map(len, labels.values())) + 1
    room = width - gutter - 1
    pens = [_Pen(index, colour, braille) for index in range(len(kept))]
    span = _span(kept.values())
    pictures = [
        _dots(columns, span, scale, *pen.grid(room, height)) for columns, pen in zip(kept.values(), pens, strict=True)
    ]
    cells = _cells(pictures, pens)
    upright, corner, flat = ("|", "+", "-") if ascii else ("│", "└", "─")
    lines = []
    for row in range(height - 1, -1, -1):
        label = labels.get(row, "").rjust(gutter - 1)
        lines.append(f"{label} {upright}{_row([cells.get((column, row), _EMPTY) for column in range(room)], pens)}")
    lines.append(" " * gutter + corner + flat * room)
    lines.append(" " * (gutter + 1) + _x_labels(span, room, x))
    if log and min(ends) <= 0:
        words = "values <= 0 are not shown" if scale.log else "no values > 0: linear scale"
        lines.append(plain(f"({words})", width))
    return [*lines, *_legend(kept, pens, width)]


class _Scale:
    """Values → their share of the height."""

    def __init__(self, values: Sequence[float], log: bool) -> None:
        positive = [value for value in values if value > 0]
        self.log = log and bool(positive)  # nothing above 0 has no logarithm: shown as it is, instead of not at all
        shown = positive if self.log else values
        self.any = bool(shown)
        self.lo, self.hi = (min(shown), max(shown)) if shown else (0.0, 0.0)
        self._start, self._end = self._place(self.lo), self._place(self.hi)
        self.flat = not self._end > self._start

    def shows(self, value: float) -> bool:
        return not self.log or value > 0

    def share(self, value: float) -> float:
        """0 to 1, from below; a value that is never any other lies in the middle."""
        if self.flat:
            return 0.5
        # Halves: the difference of two numbers can be too large for one.
        whole = self._end / 2 - self._start / 2
        return min(1.0, max(0.0, (self._place(value) / 2 - self._start / 2) / whole))

    def value(self, share: float) -> float:
        if share in (0, 1):
            return self.hi if share else self.lo
        place = self._start * (1 - share) + self._end * share
        try:
            return float(10**place) if self.log else place
        except OverflowError:
            return self.hi

    def _place(self, value: float) -> float:
        return log10(value) if self.log else float(value)


class _Pen:
    """How one curve is told from the others."""

    def __init__(self, index: int, colour: bool, braille: bool) -> None:
        self._colour = _COLOURS[index % len(_COLOURS)] if colour else None
        self.braille = braille
        self.mark = _MARKS[index % len(_MARKS)]

    def grid(self, columns: int, rows: int) -> tuple[int, int]:
        return (columns * 2, rows * 4) if self.braille else (columns, rows)

    def painted(self, text: str) -> str:
        return f"\x1b[{self._colour}m{text}\x1b[0m" if self._colour else text

    @property
    def sign(self) -> str:
        """In the legend."""
        return self.painted("──" if self.braille else self.mark)


def _span(several: Iterable[Sequence[Column]]) -> tuple[float, float]:
    xs = [one.x for columns in several for one in columns]
    return min(xs), max(xs)


def _dots(columns: Sequence[Column], span: tuple[float, float], scale: _Scale, width: int, height: int) -> Dots:
    """From each column's least to its largest value, and a line from its latest one to the next column."""
    dots: Dots = set()
    before: tuple[int, int] | None = None
    for one in columns:
        if not scale.shows(one.hi):
            before = None
            continue
        at = _across(one.x, span, width)
        low = one.lo if scale.shows(one.lo) else scale.lo
        lo, hi = (round(scale.share(value) * (height - 1)) for value in (low, one.hi))
        if before is not None:
            dots.update(_line(before, (at, min(max(before[1], lo), hi))))
        dots.update((at, row) for row in range(lo, hi + 1))
        last = one.last if scale.shows(one.last) else low
        before = at, round(scale.share(last) * (height - 1))
    return dots


def _across(x: float, span: tuple[float, float], width: int) -> int:
    whole = span[1] / 2 - span[0] / 2
    return round((x / 2 - span[0] / 2) / whole * (width - 1)) if whole > 0 else (width - 1) // 2


def _line(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for step in range(steps + 1):
        share = step / steps
        yield round(start[0] + (end[0] - start[0]) * share), round(start[1] + (end[1] - start[1]) * share)


def _cells(pictures: Sequence[Dots], pens: Sequence[_Pen]) -> dict[tuple[int, int], Cell]:
    """The signs of the picture. Where curves cross, the first one is on top."""
    cells: dict[tuple[int, int], Cell] = {}
    for index in range(len(pens) - 1, -1, -1):
        signs = dict.fromkeys(pictures[index], pens[index].mark)
        if pens[index].braille:
            signs = _braille(pictures[index])
        cells.update({place: (sign, index) for place, sign in signs.items()})
    return cells


def _braille(dots: Dots) -> dict[tuple[int, int], str]:
    bits: dict[tuple[int, int], int] = {}
    for column, row in dots:
        cell = column // 2, row // 4
        bits[cell] = bits.get(cell, 0) | _DOTS[row % 4][column % 2]
    return {cell: chr(_BRAILLE + found) for cell, found in bits.items()}


def _row(cells: Sequence[Cell], pens: Sequence[_Pen]) -> str:
    text = ""
    for index, some in groupby(cells, lambda cell: cell[1]):
        signs = "".join(sign for sign, _ in some)
        text += pens[index].painted(signs) if index >= 0 else signs
    return text.rstrip()


def _labels(scale: _Scale, height: int, dots: int) -> dict[int, str]:
    """Row → what lies there: at both ends, and in between as many as there is room for. ``dots``: of a row."""
    if scale.flat:
        return {round(scale.share(scale.lo) * (height * dots - 1)) // dots: _figures([scale.lo])[0]}
    count = max(2, (height - 1) // _ROWS_OF_LABEL + 1)
    rows = [round(index * (height - 1) / (count - 1)) for index in range(count)]
    return dict(zip(rows, _figures([scale.value(row / (height - 1)) for row in rows]), strict=True))


def _figures(values: Sequence[float]) -> list[str]:
    """With as many digits as tell them apart, and say where they lie."""
    texts: list[str] = []
    near = (max(values) / 2 - min(values) / 2) / 50
    for digits in range(3, 18):
        texts = [_figure(value, digits) for value in values]
        if all(abs(float(text) - value) <= near for text, value in zip(texts, values, strict=True)):
            break
    return texts if near else [_figure(value, 6) for value in values]


def _figure(value: float, digits: int) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.{digits}g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def _x_labels(span: tuple[float, float], room: int, name: str) -> str:
    texts = _figures(span)
    if span[0] == span[1]:
        return texts[0].center(room).rstrip()
    left, right = texts
    name = plain(name, max(0, room - len(left) - len(right) - 2))
    return (left + name.center(room - len(left) - len(right)) + right)[:room]


def _legend(curves: Mapping[str, Sequence[Column]], pens: Sequence[_Pen], width: int) -> list[str]:
    """Each curve's name behind its sign, as many in a line as fit."""
    lines: list[str] = []
    used = 0
    for name, pen in zip(curves, pens, strict=True):
        shown = plain(name, width - 4)
        long = len(shown) + (3 if pen.braille else 2)
        if lines and used + 3 + long <= width:
            lines[-1] += f"   {pen.sign} {shown}"
            used += 3 + long
        else:
            lines.append(f"{pen.sign} {shown}")
            used = long
    return lines
