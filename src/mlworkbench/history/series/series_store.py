"""Metric series of a run, stored for fast charts of millions of points.

``series.db`` in the run folder is derived from the metrics files and updated incrementally. Points
and read positions are written in one transaction, so a killed process neither loses nor duplicates
points.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar

import apsw

from ...remote.shared import metric_limits
from ...remote.shared.failpoint import failpoint
from ...remote.shared.layout import RunFolder
from ..journal_parsing import MAX_LINE, as_float
from . import series_schema
from .attempt_steps import newest_chunks, newest_values
from .downsampling import Chunk, Column, Span, columns, downsample_chunks, has_steps, value_range
from .metric_lines import Key, sqlite_text
from .metric_sources import list_file_sizes
from .other_values import Value, join_pieces
from .parallel_parse import read_in_parallel
from .points import NO_STEP, Points, merge_by_time, order_by_time
from .series_file import SeriesFile
from .series_schema import NUMBER, ROW, VALUE, FilePosition, SeriesInfo

__all__ = ["NO_STEP", "Column", "Name", "Points", "Series", "Value"]

Result = TypeVar("Result")

_TRANSACTION_BYTES = 32 * 1024 * 1024  # Maximum bytes per transaction


@dataclass(frozen=True)
class Name:
    """Name and kind of a series. A name logged with both numbers and strings has two entries."""

    name: str
    kind: str  # "number", "value", or "row"
    count: int


class Series:
    """Series of one run. ``child`` selects a nested run, such as a nested MLflow run."""

    def __init__(self, folder: RunFolder, attempt_starts: Sequence[float] = ()) -> None:
        """Open the series. ``attempt_starts`` contains when each attempt after the first one started."""
        self._metrics = folder.metrics
        self._attempt_starts = attempt_starts
        self._file = SeriesFile(os.path.join(folder.path, "series.db"))
        self._cached: tuple[object, dict[Key, SeriesInfo]] | None = None

    def __enter__(self) -> Series:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    # -- ingesting ---------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Ingest new content of the metrics files."""
        positions = self._file.read(series_schema.read_positions, self._refill) if self._file.exists() else None
        # List sizes after positions: another process may advance the positions while files grow.
        file_sizes = list_file_sizes(self._metrics, positions or ())
        if positions is not None:
            if any(file_sizes.get(name, -1) < position.offset for name, position in positions.items()):
                self._file.delete()  # an append-only file is missing or shorter, so it is a different file
            elif all(name in positions and positions[name].offset == end for name, end in file_sizes.items()):
                return
            elif _bytes_left(positions) < MAX_LINE:
                return  # the run has reached its size limit
        if file_sizes:
            self._refill()

    def _refill(self) -> None:
        # Read only up to the current sizes: a script may write faster than this process reads.
        file_sizes = list_file_sizes(self._metrics)
        self._file.write(lambda connection: self._ingest(connection, file_sizes))

    def _ingest(self, connection: apsw.Connection, file_sizes: dict[bytes, int]) -> bool:
        """Ingest at most one transaction's worth of data. Return whether there is more."""
        self._cached = None
        positions, known = series_schema.read_positions(connection), series_schema.read_series(connection)
        names, budget, has_more = set(known), min(_TRANSACTION_BYTES, _bytes_left(positions)), False
        full_budget = budget
        for name, size in file_sizes.items():
            position = positions.setdefault(name, FilePosition(len(positions) + 1, 0, False, 0))
            end = min(size, position.offset + max(0, budget))
            path, owner = os.path.join(os.fsencode(self._metrics), name), series_schema.owner_of(name)
            reached, lines = read_in_parallel(path, position, end, names, owner)
            series_schema.write(connection, known, name, reached, lines)
            budget -= reached.offset - position.offset
            if end < size:
                has_more = budget < full_budget
                break
        failpoint("points")
        return has_more

    # -- reading -----------------------------------------------------------------------------------

    def names(self, child: str | None = None) -> list[Name]:
        """Return the series in order of first occurrence."""

        def read(connection: apsw.Connection) -> dict[str, dict[str, int]]:
            series = self._child_series(connection, child).items()
            return {name: self._counts(connection, info) for name, info in series}

        counts = (self._read(read) or {}).items()
        return [Name(name, kind, kinds[kind]) for name, kinds in counts for kind in (NUMBER, VALUE, ROW) if kinds[kind]]

    def _counts(self, connection: apsw.Connection, series: SeriesInfo) -> dict[str, int]:
        counts = {NUMBER: series.numbers, VALUE: series.counts[VALUE], ROW: series.counts[ROW]}
        if self._attempt_starts and series.numbers:
            counts[NUMBER] = sum(chunk.count for _, chunk in self._chunks(connection, series))
        if self._attempt_starts and counts[VALUE]:
            counts[VALUE] = len(self._read_others(connection, series, VALUE, None))
        return counts

    def points(self, name: str, child: str | None = None) -> Points:
        """Return all numbers of a series. Points from several processes are merged by time."""

        def read(connection: apsw.Connection, series: SeriesInfo) -> Points:
            parts: dict[bytes, Points] = {}
            for file, chunk in self._chunks(connection, series):
                parts.setdefault(file, Points()).extend(chunk.load())
            return merge_by_time(list(parts.values()))

        return self._read_series(name, child, read) or _numeric_points(self.column(name, child))

    def downsample(
        self, name: str, width: int, x: str = "step", child: str | None = None, span: Span | None = None
    ) -> list[Column]:
        """Reduce a series to at most ``width`` columns.

        ``x`` is "step" or "time"; ``span`` is the visible part of the x axis. If a point has no step, or
        all steps are equal, the index of the point is used instead of its step.
        """

        def read(connection: apsw.Connection, series: SeriesInfo) -> list[Column]:
            return downsample_chunks([chunk for _, chunk in self._chunks(connection, series)], width, x, span)

        result = self._read_series(name, child, read)
        if result is not None:
            return result
        points = _numeric_points(self.column(name, child))
        return columns(points.times if x == "time" else range(len(points)), points.values, width, span)

    def value_range(self, name: str, child: str | None = None) -> Span | None:
        """Return the minimum and maximum of the finite values."""

        def read(connection: apsw.Connection, series: SeriesInfo) -> Span | None:
            return value_range(chunk for _, chunk in self._chunks(connection, series))

        result = self._read_series(name, child, read)
        if result is not None:
            return result
        values = [value for value in _numeric_points(self.column(name, child)).values if isfinite(value)]
        return (min(values), max(values)) if values else None

    def has_steps(self, name: str, child: str | None = None) -> bool:
        """Return whether charts of this series use the step as x axis."""

        def read(connection: apsw.Connection, series: SeriesInfo) -> bool:
            return has_steps([chunk for _, chunk in self._chunks(connection, series)])

        return self._read_series(name, child, read) or False

    def values(self, name: str, child: str | None = None, newest: int | None = None) -> list[Value]:
        """Return non-numeric values, such as strings and lists: all, or only the ``newest`` ones."""
        values = self._others(name, child, "value", newest)
        return values or [value for value in self.column(name, child) if not _is_number(value.value)][-(newest or 0) :]

    def rows(self, name: str, child: str | None = None, newest: int | None = None) -> list[dict[str, Any]]:
        """Return the rows of a table that was logged row by row."""
        return [value.value for value in self._others(name, child, "row", newest)]

    def column(self, name: str, child: str | None = None) -> list[Value]:
        """Return a column of a table that was logged row by row.

        ``name`` is ``table.column``. If a series has that name, the result is empty.
        """
        kinds = {series.name: series.kind for series in self.names(child)}
        for at, character in enumerate(name if sqlite_text(name) not in kinds else ""):
            if character == "." and kinds.get(sqlite_text(name[:at])) == ROW:
                rows = self._others(name[:at], child, "row", None)
                values = [row._replace(value=row.value[name[at + 1 :]]) for row in rows if name[at + 1 :] in row.value]
                if values:
                    return values
        return []

    def _others(self, name: str, child: str | None, kind: str, newest: int | None) -> list[Value]:
        def read(connection: apsw.Connection, series: SeriesInfo) -> list[Value]:
            return self._read_others(connection, series, kind, newest)

        return self._read_series(name, child, read) or []

    def _read_others(
        self, connection: apsw.Connection, series: SeriesInfo, kind: str, newest: int | None
    ) -> list[Value]:
        most = None if self._attempt_starts else newest  # later attempts may replace the newest values of a file
        parts = series_schema.read_others(connection, series, kind, most).values()
        found = [list(join_pieces(part)) for part in parts]
        order = order_by_time([array("d", (value.time for value in part)) for part in found])
        together = [value for part in found for value in part]
        values = [together[at] for at in order]
        if self._attempt_starts:
            values = newest_values(values, self._attempt_starts)
        return values if newest is None else values[max(0, len(values) - newest) :]

    def _chunks(self, connection: apsw.Connection, series: SeriesInfo) -> list[tuple[bytes, Chunk]]:
        chunks = list(series_schema.read_chunks(connection, series))
        return newest_chunks(chunks, self._attempt_starts) if self._attempt_starts else chunks

    def _read_series(
        self, name: str, child: str | None, body: Callable[[apsw.Connection, SeriesInfo], Result]
    ) -> Result | None:
        def read(connection: apsw.Connection) -> Result | None:
            series = self._child_series(connection, child).get(sqlite_text(name))
            return None if series is None else body(connection, series)

        return self._read(read)

    def _child_series(self, connection: apsw.Connection, child: str | None) -> dict[str, SeriesInfo]:
        """Return the series of a nested run, cached because rereading thousands of names is slow."""
        version = connection, *connection.execute("PRAGMA data_version")
        if self._cached is None or self._cached[0] != version:
            self._cached = version, series_schema.read_series(connection)
        return series_schema.select_child(self._cached[1], sqlite_text(child or ""))

    def _read(self, body: Callable[[apsw.Connection], Result]) -> Result | None:
        """Run ``body`` on the file. Return None, without creating a file, if there are no points."""
        if not self._file.exists():
            self.catch_up()
        return self._file.read(body, self._refill) if self._file.exists() else None


def _bytes_left(positions: dict[bytes, FilePosition]) -> int:
    """Return how many more bytes of the metrics files may be read before the run reaches its limit."""
    return metric_limits.MAX_BYTES - sum(position.offset for position in positions.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numeric_points(column: list[Value]) -> Points:
    points = Points()
    for value in column:
        if _is_number(value.value):
            points.values.append(as_float(value.value))
            points.times.append(value.time)
            points.steps.append(NO_STEP)
    return points
