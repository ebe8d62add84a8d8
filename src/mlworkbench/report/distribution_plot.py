"""Plots of logged tables: histograms as a heat map over steps, and precision-recall curves.

The functions are pure. The tables are files of a script, so every cell can have any value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .table_report import LoggedTable

BINS = 40  # bins of a heat map; the histograms of different steps have different ranges
MAX_STEPS = 100
MAX_POINTS = 1000  # maximum points of a curve
_CURVE_COLUMNS = ["step", "threshold", "recall", "precision"]
_MAX_VALUE = 1e300  # differences of larger numbers are infinite
_MIN_RANGE = 1e-300  # quotients of smaller ranges are infinite
_DENSE = 100  # value of the bin with the most values at a step


@dataclass(frozen=True)
class HeatMap:
    """Histograms over steps. ``rows`` contains one list per step, with a density of 0 to 100 for each bin."""

    steps: list[float]
    low: float
    high: float
    rows: list[list[int]]
    kind: str = "histogram"


@dataclass(frozen=True)
class Curves:
    """Precision-recall curves. ``rows`` contains one list per step, with pairs of recall and precision."""

    steps: list[float]
    rows: list[list[tuple[float, float]]]
    kind: str = "pr_curve"


def plot_of(table: LoggedTable) -> HeatMap | Curves | None:
    """Return the plot of a table, or None if it is neither a histogram nor a precision-recall curve."""
    if table.columns == _CURVE_COLUMNS:
        return _curves(table.rows)
    if table.buckets and {"step", "min", "max"} <= set(table.columns):
        return _heat_map(table)
    return None


def _heat_map(table: LoggedTable) -> HeatMap | None:
    places = [table.columns.index(name) for name in ("step", "min", "max")]
    histograms: list[tuple[float, float, float, list[float]]] = []
    for row, buckets in zip(table.rows[:MAX_STEPS], table.buckets, strict=False):
        facts = _numbers([row[place] if place < len(row) else None for place in places])
        counts = _numbers(buckets)
        if facts and counts and facts[1] <= facts[2] and min(counts) >= 0:
            histograms.append((facts[0], facts[1], facts[2], counts))
    if not histograms:
        return None
    low, high = min(item[1] for item in histograms), max(item[2] for item in histograms)
    rows = [_densities(counts, start, end, low, high) for _, start, end, counts in histograms]
    return HeatMap([item[0] for item in histograms], low, high, rows)


def _densities(counts: Sequence[float], start: float, end: float, low: float, high: float) -> list[int]:
    """Distribute the counts of buckets between ``start`` and ``end`` over bins between ``low`` and ``high``."""
    bins = [0.0] * BINS
    scale = BINS / (high - low) if high - low > _MIN_RANGE else 0.0
    for index, count in enumerate(counts):
        left = (start + (end - start) * index / len(counts) - low) * scale
        right = (start + (end - start) * (index + 1) / len(counts) - low) * scale
        first, last = min(int(left), BINS - 1), min(int(right), BINS - 1)
        for place in range(first, last + 1):
            share = (min(right, place + 1) - max(left, place)) / (right - left) if first < last else 1.0
            bins[place] += count * max(share, 0.0)
    most = max(bins)
    return [math.ceil(_DENSE * value / most) for value in bins] if 0 < most < _MAX_VALUE else [0] * BINS


def _curves(rows: Sequence[Sequence[Any]]) -> Curves | None:
    curves: dict[float, list[tuple[float, float]]] = {}
    for row in rows:
        numbers = _numbers(row)
        if len(numbers) != len(_CURVE_COLUMNS):
            continue
        step, _, recall, precision = numbers
        if step in curves or len(curves) < MAX_STEPS:
            points = curves.setdefault(step, [])
            if len(points) < MAX_POINTS:
                points.append((recall, precision))
    return Curves(sorted(curves), [curves[step] for step in sorted(curves)]) if curves else None


def _numbers(cells: Any) -> list[float]:
    """Return the cells if all of them are finite numbers, or an empty list."""
    is_valid = isinstance(cells, list) and all(
        isinstance(cell, (int, float)) and not isinstance(cell, bool) and -_MAX_VALUE < cell < _MAX_VALUE
        for cell in cells
    )
    return cells if is_valid else []
