"""A run's points, stored so that a million of them draw at once.

``series.db`` in the run's folder is made from its metric files, and goes on where it stopped. How far a file was read
is stored in one transaction with what was found there: nothing is lost and nothing comes twice, whoever dies when.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar

import apsw

from ...remote.shared import metric_files
from ...remote.shared.failpoint import failpoint
from ...remote.shared.layout import RunFolder
from ..reading import LINE, as_float
from . import tables
from .drawing import Column, Span, columns, draw, ends, has_steps
from .file import SeriesFile
from .hands import read_together
from .lines import Key, tidy
from .longvalues import Value, joined
from .points import NO_STEP, Points, by_time, merged
from .sources import sizes
from .tables import NUMBER, ROW, VALUE, Known, Place

__all__ = ["NO_STEP", "Column", "Name", "Points", "Series", "Value"]

Answer = TypeVar("Answer")

_STRIDE = 32 * 1024 * 1024  # bytes of one transaction


@dataclass(frozen=True)
class Name:
    """A series. A name that was logged both as numbers and as texts is two of them."""

    name: str
    kind: str  # "number", "value" or "row"
    count: int


class Series:
    """The points of one run. ``child``: of a run that the script made inside of it, such as a nested MLflow run."""

    def __init__(self, folder: RunFolder) -> None:
        self._metrics = folder.metrics
        self._file = SeriesFile(os.path.join(folder.path, "series.db"))
        self._cached: tuple[object, dict[Key, Known]] | None = None

    def __enter__(self) -> Series:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    # -- taking in ---------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Take in what is new in the metric files."""
        known = self._file.read(tables.places, self._refill) if self._file.exists() else None
        # After that: another process may have read further meanwhile, in files that grow.
        there = sizes(self._metrics, known or ())
        if known is not None:
            if any(there.get(name, -1) < place.offset for name, place in known.items()):
                self._file.forget()  # files that are only ever appended to are gone or shorter: these are others
            elif all(name in known and known[name].offset == end for name, end in there.items()):
                return
            elif _bytes_left(known) < LINE:
                return  # a run has no more points than that
        if there:
            self._refill()

    def _refill(self) -> None:
        there = sizes(self._metrics)  # no more than is there now: a script may write quicker than this reads
        self._file.write(lambda connection: self._take(connection, there))

    def _take(self, connection: apsw.Connection, there: dict[bytes, int]) -> bool:
        """Take in as much as one transaction holds; whether there is more."""
        self._cached = None
        places, known = tables.places(connection), tables.all_series(connection)
        names, room, more = set(known), min(_STRIDE, _bytes_left(places)), False
        stride = room
        for name, size in there.items():
            place = places.setdefault(name, Place(len(places) + 1, 0, False, 0))
            end = min(size, place.offset + max(0, room))
            reached, lines = read_together(os.path.join(os.fsencode(self._metrics), name), place, end, names)
            tables.write(connection, known, name, reached, lines)
            room -= reached.offset - place.offset
            if end < size:
                more = room < stride
                break
        failpoint("points")
        return more

    # -- reading -----------------------------------------------------------------------------------

    def names(self, child: str | None = None) -> list[Name]:
        """In the order in which they were first seen."""
        found = self._read(lambda connection: self._known(connection, child)) or {}
        counts = [(name, {NUMBER: one.numbers, **one.counts}) for name, one in found.items()]
        return [Name(name, kind, told[kind]) for name, told in counts for kind in (NUMBER, VALUE, ROW) if told[kind]]

    def points(self, name: str, child: str | None = None) -> Points:
        """All numbers of this name. Those of several processes are put in order by their times."""

        def read(connection: apsw.Connection, series: Known) -> Points:
            parts: dict[bytes, Points] = {}
            for file, chunk in tables.chunks(connection, series):
                parts.setdefault(file, Points()).extend(chunk.load())
            return merged(list(parts.values()))

        return self._of(name, child, read) or _numbers(self.column(name, child))

    def drawn(
        self, name: str, width: int, x: str = "step", child: str | None = None, span: Span | None = None
    ) -> list[Column]:
        """What a picture of ``width`` columns shows of it. ``x``: step or time; ``span``: only this part of the x axis.

        Where a point has no step, or all have the same, x is the number of the point.
        """

        def read(connection: apsw.Connection, series: Known) -> list[Column]:
            return draw([chunk for _, chunk in tables.chunks(connection, series)], width, x, span)

        found = self._of(name, child, read)
        if found is not None:
            return found
        points = _numbers(self.column(name, child))
        return columns(points.times if x == "time" else range(len(points)), points.values, width, span)

    def ends(self, name: str, child: str | None = None) -> Span | None:
        """The least and the largest of its finite values."""

        def read(connection: apsw.Connection, series: Known) -> Span | None:
            return ends(chunk for _, chunk in tables.chunks(connection, series))

        found = self._of(name, child, read)
        if found is not None:
            return found
        values = [value for value in _numbers(self.column(name, child)).values if isfinite(value)]
        return (min(values), max(values)) if values else None

    def has_steps(self, name: str, child: str | None = None) -> bool:
        """Whether a picture of it goes by steps."""

        def read(connection: apsw.Connection, series: Known) -> bool:
            return has_steps([chunk for _, chunk in tables.chunks(connection, series)])

        return self._of(name, child, read) or False

    def values(self, name: str, child: str | None = None, newest: int | None = None) -> list[Value]:
        """Values that are no numbers: texts, lists and the like; all, or as many of the newest."""
        found = self._others(name, child, "value", newest)
        return found or [one for one in self.column(name, child) if not _is_number(one.value)][-(newest or 0) :]

    def rows(self, name: str, child: str | None = None, newest: int | None = None) -> list[dict[str, Any]]:
        """The rows of a table that was logged row by row."""
        return [value.value for value in self._others(name, child, "row", newest)]

    def column(self, name: str, child: str | None = None) -> list[Value]:
        """Of a table that was logged row by row, where the name is ``table.column`` and none of its own."""
        known = {one.name: one.kind for one in self.names(child)}
        for at, sign in enumerate(name if tidy(name) not in known else ""):
            if sign == "." and known.get(tidy(name[:at])) == ROW:
                rows = self._others(name[:at], child, "row", None)
                found = [row._replace(value=row.value[name[at + 1 :]]) for row in rows if name[at + 1 :] in row.value]
                if found:
                    return found
        return []

    def _others(self, name: str, child: str | None, kind: str, newest: int | None) -> list[Value]:
        def read(connection: apsw.Connection, series: Known) -> list[Value]:
            parts = tables.others(connection, series, kind, newest).values()
            found = [list(joined(part)) for part in parts]
            order = by_time([array("d", (value.time for value in part)) for part in found])
            together = [value for part in found for value in part]
            if newest is not None:
                order = order[max(0, len(order) - newest) :]
            return [together[at] for at in order]

        return self._of(name, child, read) or []

    def _of(self, name: str, child: str | None, body: Callable[[apsw.Connection, Known], Answer]) -> Answer | None:
        def read(connection: apsw.Connection) -> Answer | None:
            series = self._known(connection, child).get(tidy(name))
            return None if series is None else body(connection, series)

        return self._read(read)

    def _known(self, connection: apsw.Connection, child: str | None) -> dict[str, Known]:
        """The series of a child. With ten thousand names it matters that they are not read for every one of them."""
        version = connection, *connection.execute("PRAGMA data_version")
        if self._cached is None or self._cached[0] != version:
            self._cached = version, tables.all_series(connection)
        return tables.of_child(self._cached[1], tidy(child or ""))

    def _read(self, body: Callable[[apsw.Connection], Answer]) -> Answer | None:
        """None where there are no points at all: then no file is made for them."""
        if not self._file.exists():
            self.catch_up()
        return self._file.read(body, self._refill) if self._file.exists() else None


def _bytes_left(places: dict[bytes, Place]) -> int:
    """How much more of the metrics files is read."""
    return metric_files.MOST_BYTES - sum(place.offset for place in places.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(column: list[Value]) -> Points:
    points = Points()
    for one in column:
        if _is_number(one.value):
            points.values.append(as_float(one.value))
            points.times.append(one.time)
            points.steps.append(NO_STEP)
    return points
