"""Line charts as inline SVG. This module has no side effects.

Colors are CSS classes, which the page defines for light and dark mode.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ...history.series.downsampling import Column
from .markup import escape_text

COLORS, DASHES = 8, 3  # number of distinguishable curves: each color with each line style
WIDTH, HEIGHT = 480, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 12, 10, 40
_TICKS = 5
_LARGEST = sys.float_info.max
_LOG_SCALE_RATIO = 1000.0  # minimum ratio of largest to smallest value for a logarithmic scale


@dataclass(frozen=True)
class Curve:
    """The curve of one run in a chart. ``number`` determines its color and line style in all charts."""

    label: str
    number: int
    columns: Sequence[Column]


def css_classes(number: int) -> str:
    """Return the CSS classes of a curve."""
    return f"c{number % COLORS} d{number // COLORS % DASHES}"


def draw_chart(title: str, curves: Sequence[Curve], x_title: str = "Step") -> str:
    """Return the chart without empty curves, or an empty string if all curves are empty."""
    curves = [curve for curve in curves if curve.columns]
    if not curves:
        return ""
    frame = _PlotArea(curves)
    label = escape_text(_aria_label(title, curves))
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">',
        *_axes(frame, x_title),
    ]
    for curve in curves:
        name = escape_text(_curve_label(curve))
        parts.append(f'<g class="{css_classes(curve.number)}"><title>{name}</title>{_shape(frame, curve)}</g>')
    return "".join(parts) + "</svg>"


def _aria_label(title: str, curves: Sequence[Curve]) -> str:
    return f"{title}: " + "; ".join(_curve_label(curve) for curve in curves[:12])


def _curve_label(curve: Curve) -> str:
    return f"{curve.label}: {format_number(curve.columns[-1].last)} (last value)"


class _PlotArea:
    """A mapping from values to positions in the chart."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        every = [column for curve in curves for column in curve.columns]
        lows, highs = [column.lo for column in every], [column.hi for column in every]
        self.log = min(lows) > 0 and max(highs) / min(lows) >= _LOG_SCALE_RATIO
        self.x = _Axis(min(column.x for column in every), max(column.x for column in every), _LEFT, WIDTH - _RIGHT)
        least, most = min(lows), max(highs)
        if self.log:
            least, most = math.log10(least), math.log10(most)
        self._y = _Axis(least, most, HEIGHT - _BOTTOM, _TOP, margin=0.05)

    def y(self, value: float) -> float:
        return self._y.position(math.log10(value) if self.log else value)

    def y_ticks(self) -> list[tuple[float, str]]:
        """Return the position and label of each tick."""
        if not self.log:
            return [(self._y.position(value), format_number(value)) for value in self._y.ticks()]
        first, last = math.ceil(self._y.start), math.floor(self._y.end)
        every = max(1, math.ceil((last - first + 1) / _TICKS))
        return [(self._y.position(power), f"1e{power}") for power in range(first, last + 1, every)]


class _Axis:
    """An axis that maps the range from ``start`` to ``end`` to the range between two positions."""

    def __init__(self, start: float, end: float, first: float, last: float, margin: float = 0.0) -> None:
        # Use halves, because the difference between two very large numbers overflows.
        if not end / 2 - start / 2 > 0:
            padding = abs(start) * 0.1 or 1.0
            start, end = max(start - padding, -_LARGEST), min(end + padding, _LARGEST)
        padding = (end / 2 - start / 2) * 2 * margin
        if math.isfinite(start - padding) and math.isfinite(end + padding):
            start, end = start - padding, end + padding
        self.start, self.end = start, end
        self._first, self._last = first, last

    def position(self, value: float) -> float:
        share = (value / 2 - self.start / 2) / (self.end / 2 - self.start / 2)
        return round(self._first + share * (self._last - self._first), 1)

    def ticks(self) -> list[float]:
        """Return round numbers within the range."""
        rough = (self.end / 2 - self.start / 2) * 2 / _TICKS
        if not 0 < rough < math.inf:
            return [self.start, self.end]
        power = 10.0 ** math.floor(math.log10(rough))
        if not power:
            return [self.start, self.end]
        step = next((power * good for good in (1, 2, 2.5, 5, 10) if power * good >= rough), power * 10)
        first, last = math.ceil(self.start / step), math.floor(self.end / step)
        return [count * step for count in range(first, last + 1)][: 3 * _TICKS]


def _axes(frame: _PlotArea, x_title: str) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for y, text in frame.y_ticks():
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4.5:g}" text-anchor="end">{text}</text>')
    for value in frame.x.ticks():
        x = frame.x.position(value)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{format_number(value)}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="tick" x="{right}" y="{HEIGHT - 5}" text-anchor="end">{escape_text(x_title)}</text>')
    if frame.log:
        parts.append(f'<text class="tick" x="4" y="{HEIGHT - 5}">Logarithmic scale</text>')
    return parts


def _shape(frame: _PlotArea, curve: Curve) -> str:
    columns = curve.columns
    positions = [(frame.x.position(column.x), frame.y(column.last)) for column in columns]
    if len(positions) == 1:
        return f'<circle class="dot" cx="{positions[0][0]}" cy="{positions[0][1]}" r="3.5"/>'
    band = ""
    if any(column.lo < column.hi for column in columns):
        edge = [(x, frame.y(column.hi)) for (x, _), column in zip(positions, columns, strict=True)]
        edge += [(x, frame.y(column.lo)) for (x, _), column in zip(positions[::-1], columns[::-1], strict=True)]
        band = f'<polygon class="band" points="{_format_points(edge)}"/>'
    return f'{band}<polyline class="curve" points="{_format_points(positions)}"/>'


def _format_points(positions: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in positions)


def format_number(value: float) -> str:
    """Format a number with up to five digits."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:.5g}"
