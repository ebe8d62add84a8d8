"""Text charts: a sparkline of block characters, or curves with axes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import log10

from ..history.series.downsampling import Column
from ..sanitize import plain

Dots = set[tuple[int, int]]  # (column, row); row 0 is at the bottom
Cell = tuple[str, int]  # (character, index of the curve)

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.:-=+*#"  # ASCII replacement for _BLOCKS
_BRAILLE_START = 0x2800
# Bits of a Braille character, bottom row first.
_BRAILLE_BITS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
_MARKS = "*+xo#@%&abcdefghijklmnpqrstuvwyz"
_COLORS = (36, 33, 35, 32, 31, 34, 96, 93, 95, 92, 91, 94)
_EMPTY: Cell = (" ", -1)
_MIN_WIDTH, _MIN_HEIGHT = 20, 3
_ROWS_PER_LABEL = 4


def supports_blocks(encoding: str) -> bool:
    """Return whether the encoding supports the chart characters. If not, set ``ascii``."""
    try:
        f"{_BLOCKS}{chr(_BRAILLE_START)}│└─".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def sparkline(columns: Sequence[Column], width: int, ascii: bool = False, log: bool = False) -> str:
    """Return a sparkline (``▁▂▅█``) with the last value of each of the newest ``width`` columns."""
    scale = _Scale([column.last for column in columns], log)
    levels = _ASCII_LEVELS if ascii else _BLOCKS
    values = [column.last for column in columns if scale.includes(column.last)]
    values = values[max(0, len(values) - max(0, width)) :]
    if scale.flat:
        return levels[len(levels) // 2 - 1] * len(values)
    return "".join(levels[min(int(scale.fraction(value) * len(levels)), len(levels) - 1)] for value in values)


def draw_chart(
    curves: Mapping[str, Sequence[Column]],
    width: int,
    height: int,
    *,
    log: bool = False,
    ascii: bool = False,
    color: bool = False,
    x: str = "",
) -> list[str]:
    """Draw curves in one chart with ``height`` rows, axes, and a legend, at most ``width`` wide.

    A single curve and colored curves use Braille dots; otherwise, each curve has its own character.
    ``log`` selects a logarithmic y axis, which omits values that are not positive. ``x`` is the name of
    the x axis.
    """
    width, height = max(width, _MIN_WIDTH), max(height, _MIN_HEIGHT)
    nonempty = {name: columns for name, columns in curves.items() if columns}
    ends = [end for columns in nonempty.values() for point in columns for end in (point.lo, point.hi)]
    scale = _Scale(ends, log)
    if not scale.any:
        return ["no points to draw"]
    braille = not ascii and (color or len(nonempty) == 1)
    labels = _y_labels(scale, height, 4 if braille else 1)
    gutter = max(map(len, labels.values())) + 1
    chart_width = width - gutter - 1
    pens = [_Pen(index, color, braille) for index in range(len(nonempty))]
    x_range = _x_range(nonempty.values())
    dots = [
        _plot(columns, x_range, scale, *pen.grid(chart_width, height))
        for columns, pen in zip(nonempty.values(), pens, strict=True)
    ]
    cells = _merge_cells(dots, pens)
    vertical, corner, horizontal = ("|", "+", "-") if ascii else ("│", "└", "─")
    lines = []
    for row in range(height - 1, -1, -1):
        label = labels.get(row, "").rjust(gutter - 1)
        characters = _format_row([cells.get((column, row), _EMPTY) for column in range(chart_width)], pens)
        lines.append(f"{label} {vertical}{characters}")
    lines.append(" " * gutter + corner + horizontal * chart_width)
    lines.append(" " * (gutter + 1) + _x_labels(x_range, chart_width, x))
    if log and min(ends) <= 0:
        note = "values <= 0 are not shown" if scale.log else "no values > 0: linear scale"
        lines.append(plain(f"({note})", width))
    return [*lines, *_legend(nonempty, pens, width)]


class _Scale:
    """Mapping from values to fractions of the chart height."""

    def __init__(self, values: Sequence[float], log: bool) -> None:
        positive = [value for value in values if value > 0]
        self.log = log and bool(positive)  # without positive values, the scale is linear
        shown = positive if self.log else values
        self.any = bool(shown)
        self.lo, self.hi = (min(shown), max(shown)) if shown else (0.0, 0.0)
        self._start, self._end = self._position(self.lo), self._position(self.hi)
        self.flat = not self._end > self._start

    def includes(self, value: float) -> bool:
        return not self.log or value > 0

    def fraction(self, value: float) -> float:
        """Return a fraction from 0 (bottom) to 1 (top). A constant value is in the middle."""
        if self.flat:
            return 0.5
        # Halved, because the difference between two floats can overflow.
        total = self._end / 2 - self._start / 2
        return min(1.0, max(0.0, (self._position(value) / 2 - self._start / 2) / total))

    def value(self, fraction: float) -> float:
        if fraction in (0, 1):
            return self.hi if fraction else self.lo
        position = self._start * (1 - fraction) + self._end * fraction
        try:
            return float(10**position) if self.log else position
        except OverflowError:
            return self.hi

    def _position(self, value: float) -> float:
        return log10(value) if self.log else float(value)


class _Pen:
    """Character and color that distinguish a curve."""

    def __init__(self, index: int, color: bool, braille: bool) -> None:
        self._color = _COLORS[index % len(_COLORS)] if color else None
        self.braille = braille
        self.mark = _MARKS[index % len(_MARKS)]

    def grid(self, columns: int, rows: int) -> tuple[int, int]:
        return (columns * 2, rows * 4) if self.braille else (columns, rows)

    def paint(self, text: str) -> str:
        return f"\x1b[{self._color}m{text}\x1b[0m" if self._color else text

    @property
    def sample(self) -> str:
        """Sample of the line for the legend."""
        return self.paint("──" if self.braille else self.mark)


def _x_range(curves: Iterable[Sequence[Column]]) -> tuple[float, float]:
    xs = [column.x for columns in curves for column in columns]
    return min(xs), max(xs)


def _plot(columns: Sequence[Column], x_range: tuple[float, float], scale: _Scale, width: int, height: int) -> Dots:
    """Return a curve's dots: the value range of each column, and a line to the next column."""
    dots: Dots = set()
    previous: tuple[int, int] | None = None
    for column in columns:
        if not scale.includes(column.hi):
            previous = None
            continue
        x = _x_position(column.x, x_range, width)
        low = column.lo if scale.includes(column.lo) else scale.lo
        lo, hi = (round(scale.fraction(value) * (height - 1)) for value in (low, column.hi))
        if previous is not None:
            dots.update(_line_dots(previous, (x, min(max(previous[1], lo), hi))))
        dots.update((x, row) for row in range(lo, hi + 1))
        last = column.last if scale.includes(column.last) else low
        previous = x, round(scale.fraction(last) * (height - 1))
    return dots


def _x_position(x: float, x_range: tuple[float, float], width: int) -> int:
    total = x_range[1] / 2 - x_range[0] / 2
    return round((x / 2 - x_range[0] / 2) / total * (width - 1)) if total > 0 else (width - 1) // 2


def _line_dots(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for step in range(steps + 1):
        fraction = step / steps
        yield round(start[0] + (end[0] - start[0]) * fraction), round(start[1] + (end[1] - start[1]) * fraction)


def _merge_cells(curves: Sequence[Dots], pens: Sequence[_Pen]) -> dict[tuple[int, int], Cell]:
    """Return the characters of the chart. Where curves cross, the first curve is on top."""
    cells: dict[tuple[int, int], Cell] = {}
    for index in range(len(pens) - 1, -1, -1):
        characters = dict.fromkeys(curves[index], pens[index].mark)
        if pens[index].braille:
            characters = _braille_cells(curves[index])
        cells.update({position: (character, index) for position, character in characters.items()})
    return cells


def _braille_cells(dots: Dots) -> dict[tuple[int, int], str]:
    bits: dict[tuple[int, int], int] = {}
    for column, row in dots:
        cell = column // 2, row // 4
        bits[cell] = bits.get(cell, 0) | _BRAILLE_BITS[row % 4][column % 2]
    return {cell: chr(_BRAILLE_START + mask) for cell, mask in bits.items()}


def _format_row(cells: Sequence[Cell], pens: Sequence[_Pen]) -> str:
    text = ""
    for index, run in groupby(cells, lambda cell: cell[1]):
        characters = "".join(character for character, _ in run)
        text += pens[index].paint(characters) if index >= 0 else characters
    return text.rstrip()


def _y_labels(scale: _Scale, height: int, dots: int) -> dict[int, str]:
    """Return the y-axis labels by row: at both ends, and in between if there is room.

    ``dots`` is the number of dots per row.
    """
    if scale.flat:
        return {round(scale.fraction(scale.lo) * (height * dots - 1)) // dots: _format_numbers([scale.lo])[0]}
    count = max(2, (height - 1) // _ROWS_PER_LABEL + 1)
    rows = [round(index * (height - 1) / (count - 1)) for index in range(count)]
    return dict(zip(rows, _format_numbers([scale.value(row / (height - 1)) for row in rows]), strict=True))


def _format_numbers(values: Sequence[float]) -> list[str]:
    """Format values with few digits. The error is at most 1% of the range of the values."""
    texts: list[str] = []
    tolerance = (max(values) / 2 - min(values) / 2) / 50
    for digits in range(3, 18):
        texts = [_format_number(value, digits) for value in values]
        if all(abs(float(text) - value) <= tolerance for text, value in zip(texts, values, strict=True)):
            break
    return texts if tolerance else [_format_number(value, 6) for value in values]


def _format_number(value: float, digits: int) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.{digits}g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def _x_labels(x_range: tuple[float, float], width: int, name: str) -> str:
    texts = _format_numbers(x_range)
    if x_range[0] == x_range[1]:
        return texts[0].center(width).rstrip()
    left, right = texts
    name = plain(name, max(0, width - len(left) - len(right) - 2))
    return (left + name.center(width - len(left) - len(right)) + right)[:width]


def _legend(curves: Mapping[str, Sequence[Column]], pens: Sequence[_Pen], width: int) -> list[str]:
    """Return the legend: the sample and name of each curve, several per line if they fit."""
    lines: list[str] = []
    used = 0
    for name, pen in zip(curves, pens, strict=True):
        label = plain(name, width - 4)
        length = len(label) + (3 if pen.braille else 2)
        if lines and used + 3 + length <= width:
            lines[-1] += f"   {pen.sample} {label}"
            used += 3 + length
        else:
            lines.append(f"{pen.sample} {label}")
            used = length
    return lines
