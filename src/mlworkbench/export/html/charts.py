"""Curves over each other as one inline SVG. Pure; colours are classes, so that light and dark are the page's own."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ...history.series.drawing import Column
from .markup import shown

COLOURS, DASHES = 8, 3  # as many curves can be told apart: each colour with each kind of line
WIDTH, HEIGHT = 480, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 12, 10, 40
_TICKS = 5
_LARGEST = sys.float_info.max
_WIDE = 1000.0  # a largest value so many times the least is better seen on a logarithmic scale


@dataclass(frozen=True)
class Curve:
    """One run's part of a chart. ``number`` is its colour, the same in all charts."""

    label: str
    number: int
    columns: Sequence[Column]


def mark(number: int) -> str:
    """The class of a curve."""
    return f"c{number % COLOURS} d{number // COLOURS % DASHES}"


def draw(title: str, curves: Sequence[Curve], x_title: str = "Step") -> str:
    """The chart; curves without a point are left out. Empty if there is none at all."""
    curves = [curve for curve in curves if curve.columns]
    if not curves:
        return ""
    frame = _Frame(curves)
    told = shown(_described(title, curves))
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{told}">',
        *_axes(frame, x_title),
    ]
    for curve in curves:
        parts.append(f'<g class="{mark(curve.number)}"><title>{shown(_told(curve))}</title>{_shape(frame, curve)}</g>')
    return "".join(parts) + "</svg>"


def _described(title: str, curves: Sequence[Curve]) -> str:
    return f"{title}: " + "; ".join(_told(curve) for curve in curves[:12])


def _told(curve: Curve) -> str:
    return f"{curve.label}: {number(curve.columns[-1].last)} (last value)"


class _Frame:
    """From values to places in the picture."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        every = [column for curve in curves for column in curve.columns]
        lows, highs = [column.lo for column in every], [column.hi for column in every]
        self.log = min(lows) > 0 and max(highs) / min(lows) >= _WIDE
        self.x = _Axis(min(column.x for column in every), max(column.x for column in every), _LEFT, WIDTH - _RIGHT)
        least, most = min(lows), max(highs)
        if self.log:
            least, most = math.log10(least), math.log10(most)
        self._y = _Axis(least, most, HEIGHT - _BOTTOM, _TOP, room=0.05)

    def y(self, value: float) -> float:
        return self._y.place(math.log10(value) if self.log else value)

    def y_ticks(self) -> list[tuple[float, str]]:
        """Place and text."""
        if not self.log:
            return [(self._y.place(one), number(one)) for one in self._y.ticks()]
        first, last = math.ceil(self._y.start), math.floor(self._y.end)
        every = max(1, math.ceil((last - first + 1) / _TICKS))
        return [(self._y.place(power), f"1e{power}") for power in range(first, last + 1, every)]


class _Axis:
    """One direction: numbers from ``start`` to ``end`` lie between two places."""

    def __init__(self, start: float, end: float, first: float, last: float, room: float = 0.0) -> None:
        # Half of each: the range of two very large numbers is no number any more.
        if not end / 2 - start / 2 > 0:
            spare = abs(start) * 0.1 or 1.0
            start, end = max(start - spare, -_LARGEST), min(end + spare, _LARGEST)
        spare = (end / 2 - start / 2) * 2 * room
        if math.isfinite(start - spare) and math.isfinite(end + spare):
            start, end = start - spare, end + spare
        self.start, self.end = start, end
        self._first, self._last = first, last

    def place(self, value: float) -> float:
        share = (value / 2 - self.start / 2) / (self.end / 2 - self.start / 2)
        return round(self._first + share * (self._last - self._first), 1)

    def ticks(self) -> list[float]:
        """Round numbers within it."""
        rough = (self.end / 2 - self.start / 2) * 2 / _TICKS
        if not 0 < rough < math.inf:
            return [self.start, self.end]
        power = 10.0 ** math.floor(math.log10(rough))
        if not power:
            return [self.start, self.end]
        step = next((power * good for good in (1, 2, 2.5, 5, 10) if power * good >= rough), power * 10)
        first, last = math.ceil(self.start / step), math.floor(self.end / step)
        return [count * step for count in range(first, last + 1)][: 3 * _TICKS]


def _axes(frame: _Frame, x_title: str) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for y, text in frame.y_ticks():
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4.5:g}" text-anchor="end">{text}</text>')
    for value in frame.x.ticks():
        x = frame.x.place(value)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{number(value)}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="tick" x="{right}" y="{HEIGHT - 5}" text-anchor="end">{shown(x_title)}</text>')
    if frame.log:
        parts.append(f'<text class="tick" x="4" y="{HEIGHT - 5}">Logarithmic scale</text>')
    return parts


def _shape(frame: _Frame, curve: Curve) -> str:
    columns = curve.columns
    places = [(frame.x.place(column.x), frame.y(column.last)) for column in columns]
    if len(places) == 1:
        return f'<circle class="dot" cx="{places[0][0]}" cy="{places[0][1]}" r="3.5"/>'
    band = ""
    if any(column.lo < column.hi for column in columns):
        edge = [(x, frame.y(column.hi)) for (x, _), column in zip(places, columns, strict=True)]
        edge += [(x, frame.y(column.lo)) for (x, _), column in zip(places[::-1], columns[::-1], strict=True)]
        band = f'<polygon class="band" points="{_list(edge)}"/>'
    return f'{band}<polyline class="curve" points="{_list(places)}"/>'


def _list(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in places)


def number(value: float) -> str:
    """For people: five digits."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:.5g}"
