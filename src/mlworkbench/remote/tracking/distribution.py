"""Parse the histograms and the precision-recall curves of TensorBoard summaries.

The functions are pure, and the input is untrusted. They return None for data that cannot be shown.
"""

from __future__ import annotations

import struct
from array import array

from .protobuf_wire import BYTES, FIXED32, FIXED64, VARINT, FieldBudget, as_bytes, as_signed, iterate_fields

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    Bucket = Tuple[float, float, float]  # left edge, right edge, number of values

MAX_ENCODED = 64 * 1024  # maximum bytes of a message; TensorBoard's writers need 30 KiB at most
BUCKETS = 64  # maximum buckets of a parsed histogram, all of the same width
THRESHOLDS = 101  # maximum points of a parsed curve
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MAX_FIELDS = 20000
_MAX_VALUE = 1e300  # differences of larger numbers are infinite
_FLOAT, _DOUBLE = 1, 2  # data types of a tensor
_ROWS = 6  # of a curve: true positives, false positives, true negatives, false negatives, precision, recall


class Histogram:
    """Distribution of values at one step. ``buckets`` divide the range from ``low`` to ``high`` evenly."""

    __slots__ = ("buckets", "count", "high", "low", "mean", "quantiles")

    def __init__(self, low: float, high: float, mean: float, source: "Sequence[Bucket]") -> None:
        self.low = low
        self.high = high
        self.mean = mean
        self.count = sum(count for _, _, count in source)
        self.quantiles = [_quantile(source, share * self.count, high) for share in QUANTILES]
        self.buckets = _spread(source, low, high)


def parse_histogram(data: memoryview) -> "Optional[Histogram]":
    """Parse a ``HistogramProto``."""
    facts: Dict[int, float] = {}
    limits, counts = array("d"), array("d")
    for number, wire, value in iterate_fields(data, FieldBudget(_MAX_FIELDS)):
        if number <= 5 and wire == FIXED64:
            facts[number] = struct.unpack("<d", as_bytes(value))[0]
        elif number in (6, 7) and wire in (BYTES, FIXED64):
            (limits if number == 6 else counts).extend(_unpack("d", as_bytes(value)))
    low, high = facts.get(1, 0.0), facts.get(2, 0.0)  # protobuf omits zeros
    if len(limits) != len(counts) or not -_MAX_VALUE < low <= high < _MAX_VALUE:
        return None
    source: List[Bucket] = []
    left = low
    for limit, count in zip(limits, counts):
        right = min(max(limit, left), high) if limit == limit else left
        if 0 < count < _MAX_VALUE:
            source.append((left, right, count))
        left = right
    total = facts.get(3, 0.0)
    mean = facts.get(4, 0.0) / total if total else low
    return Histogram(low, high, mean if low <= mean <= high else _mean(source), source) if source else None


def parse_histogram_tensor(data: memoryview) -> "Optional[Histogram]":
    """Parse the tensor that TensorFlow 2 writes: a left edge, a right edge, and a count per bucket."""
    shape, numbers = _parse_tensor(data)
    if len(shape) != 2 or shape[1] != 3 or len(numbers) != 3 * shape[0]:
        return None
    source = [
        (left, right, count)
        for left, right, count in zip(numbers[::3], numbers[1::3], numbers[2::3])
        if 0 < count < _MAX_VALUE and -_MAX_VALUE < left <= right < _MAX_VALUE
    ]
    if not source:
        return None
    source.sort()
    low, high = source[0][0], max(right for _, right, _ in source)
    return Histogram(low, high, _mean(source), source)


def parse_pr_curve(data: memoryview) -> "Optional[array[float]]":
    """Parse a precision-recall curve. Return threshold, recall, and precision of each point, one after another."""
    shape, numbers = _parse_tensor(data)
    if len(shape) != 2 or shape[0] != _ROWS or shape[1] < 2 or len(numbers) != _ROWS * shape[1]:
        return None
    size = end = shape[1]
    precision, recall = numbers[4 * size : 5 * size], numbers[5 * size :]
    while end > 1 and numbers[end - 1] == numbers[size + end - 1] == 0:
        end -= 1  # without positive predictions, precision is undefined; writers store 0
    count = min(end, THRESHOLDS)
    points = array("d")
    for point in range(count):
        index = point * (end - 1) // max(count - 1, 1)
        if not (0 <= recall[index] <= 1 and 0 <= precision[index] <= 1):  # also true for NaN
            return None
        points.extend((index / (size - 1), recall[index], precision[index]))
    return points


def _parse_tensor(data: memoryview) -> "Tuple[List[int], array[float]]":
    """Return the shape and the numbers of a tensor of floats or doubles."""
    budget = FieldBudget(_MAX_FIELDS)
    kind, shape, content = 0, [], memoryview(b"")
    values = {_FLOAT: array("d"), _DOUBLE: array("d")}
    for number, wire, value in iterate_fields(data, budget):
        if (number, wire) == (1, VARINT):
            kind = as_signed(value)
        elif (number, wire) == (2, BYTES):
            for _, inner, dimension in iterate_fields(as_bytes(value), budget):
                if inner == BYTES:
                    sizes = [
                        as_signed(size) for name, _, size in iterate_fields(as_bytes(dimension), budget) if name == 1
                    ]
                    shape.append(sizes[0] if sizes else 0)
        elif (number, wire) == (4, BYTES):
            content = as_bytes(value)
        elif number == 5 and wire in (BYTES, FIXED32):
            values[_FLOAT].extend(_unpack("f", as_bytes(value)))
        elif number == 6 and wire in (BYTES, FIXED64):
            values[_DOUBLE].extend(_unpack("d", as_bytes(value)))
    if kind not in values:
        return [], array("d")
    if content:
        return shape, array("d", _unpack("f" if kind == _FLOAT else "d", content))
    return shape, values[kind]


def _unpack(form: str, data: memoryview) -> "Sequence[float]":
    count = len(data) // struct.calcsize("<" + form)
    return struct.unpack_from("<%d%s" % (count, form), data)


def _mean(source: "Sequence[Bucket]") -> float:
    total = sum(count for _, _, count in source)
    return sum((left / 2 + right / 2) * (count / total) for left, right, count in source)


def _quantile(source: "Sequence[Bucket]", rank: float, high: float) -> float:
    """Return the value at a rank, as if the values in a bucket had the same distance."""
    before = 0.0
    for left, right, count in source:
        if before + count >= rank:
            return left + (right - left) * (rank - before) / count
        before += count
    return high


def _spread(source: "Sequence[Bucket]", low: float, high: float) -> "array[float]":
    """Distribute the counts over buckets of the same width."""
    width = (high - low) / BUCKETS
    if width <= 0:
        return array("d", [sum(count for _, _, count in source)])
    result = array("d", bytes(8 * BUCKETS))
    for left, right, count in source:
        first = min(int((left - low) / width), BUCKETS - 1)
        last = min(int((right - low) / width), BUCKETS - 1)
        for index in range(first, last + 1):
            start, end = max(left, low + index * width), min(right, low + (index + 1) * width)
            share = (end - start) / (right - left) if first < last else 1.0
            result[index] += count * min(max(share, 0.0), 1.0)
    return result
