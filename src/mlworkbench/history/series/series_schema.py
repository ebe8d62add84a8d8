"""The tables of a run's ``series.db``: chunks of points, other values, and how far the metric files were read.

Every row has a checksum of its content. A series says how many points it has, and so does a file: what a disk lost or
changed is noticed where it is read. All is written by one process at a time, which keeps names apart by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import apsw

from ..database import Damaged
from .drawing import Chunk
from .lines import Key, Lines, Other
from .points import BYTE_ORDER, CHUNK, NO_STEP, Points, summarise_chunk

NUMBER, VALUE, ROW, SAME = KINDS = ("number", "value", "row", "same")
VERSION = 2 + BYTE_ORDER

_TABLES = (
    """CREATE TABLE files (
    id INTEGER PRIMARY KEY, name BLOB NOT NULL, offset INTEGER NOT NULL, skipping INTEGER NOT NULL,
    points INTEGER NOT NULL, checksum INTEGER NOT NULL
)""",
    """CREATE TABLE series (
    id INTEGER PRIMARY KEY, child TEXT NOT NULL, name TEXT NOT NULL, numbers INTEGER NOT NULL, others INTEGER NOT NULL,
    vals INTEGER NOT NULL, rows INTEGER NOT NULL, same INTEGER NOT NULL, checksum INTEGER NOT NULL
)""",
    """CREATE TABLE chunks (
    id INTEGER PRIMARY KEY, series INTEGER NOT NULL, file INTEGER NOT NULL, nr INTEGER NOT NULL,
    count INTEGER NOT NULL, stepped INTEGER NOT NULL, summary BLOB NOT NULL, checksum INTEGER NOT NULL
)""",
    "CREATE TABLE bodies (id INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, body BLOB NOT NULL)",
    """CREATE TABLE others (
    id INTEGER PRIMARY KEY, series INTEGER NOT NULL, file INTEGER NOT NULL, kind TEXT NOT NULL, first INTEGER NOT NULL,
    step INTEGER, time REAL NOT NULL, way TEXT, start INTEGER NOT NULL, body TEXT NOT NULL, checksum INTEGER NOT NULL
)""",
    "CREATE INDEX chunks_of_series ON chunks (series, file, nr)",
    "CREATE INDEX others_of_series ON others (series, file)",
)


class Place(NamedTuple):
    """How far a metric file was read."""

    file: int
    offset: int
    skipping: bool  # in the middle of a line that is too long to be one
    points: int  # and other values, in all


@dataclass
class Known:
    """A series. The counts are of what begins there: a long value is one, in however many pieces."""

    id: int
    numbers: int = 0
    others: int = 0  # rows of the table
    counts: Counter[str] = field(default_factory=Counter)  # of the kinds but numbers


def create(connection: apsw.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check(connection: apsw.Connection) -> None:
    """Raises Damaged where the file is not one of ours, or something is missing in it."""
    if list(connection.execute("PRAGMA user_version")) != [(VERSION,)]:
        raise Damaged("another version")
    if {text for (text,) in connection.execute("SELECT sql FROM sqlite_schema")} != set(_TABLES):
        raise Damaged("other tables")
    read = sum(place.points for place in places(connection).values())
    if read != sum(one.numbers + one.others for one in all_series(connection).values()):
        raise Damaged("points are missing")


def _sum(*values: object) -> int:
    # SQLite keeps no sign of a zero: what was written as -0.0 comes back as 0.0.
    said = ("0.0" if (one := repr(value)) == "-0.0" else one for value in values)
    return crc32("\x1f".join(said).encode("utf-8"))


def _sound(*values: Any) -> tuple[Any, ...]:
    """A row without its checksum, which comes last."""
    if _sum(*values[:-1]) != values[-1]:
        raise Damaged("a row")
    return values[:-1]


# -- writing ---------------------------------------------------------------------------------------


def places(connection: apsw.Connection) -> dict[bytes, Place]:
    found = {}
    for told in connection.execute("SELECT id, name, offset, skipping, points, checksum FROM files"):
        file, name, offset, skipping, points = _sound(*told)
        found[name] = Place(file, offset, bool(skipping), points)
    return found


def all_series(connection: apsw.Connection) -> dict[Key, Known]:
    found = {}
    for told in connection.execute("SELECT * FROM series"):
        number, child, name, numbers, others, *counts = _sound(*told)
        found[child, name] = Known(number, numbers, others, Counter(dict(zip(KINDS[1:], counts, strict=True))))
    return found


def write(connection: apsw.Connection, known: dict[Key, Known], name: bytes, place: Place, lines: Lines) -> None:
    """What was found in a file since it was last read, and how far that is now."""
    changed, points = set(), place.points
    for key, new in lines.points.items():
        if new:
            series = known.setdefault(key, Known(len(known) + 1))
            _append(connection, series.id, place.file, new)
            series.numbers += len(new)
            points += len(new)
            changed.add(key)
    for key, other in lines.others:
        series = known.setdefault(key, Known(len(known) + 1))
        told = (series.id, place.file, *other)
        connection.execute("INSERT INTO others VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*told, _sum(*told)))
        series.others += 1
        series.counts[other.kind] += other.first
        points += 1
        changed.add(key)
    for key in sorted(changed):
        _replace(connection, "series", _series_row(key, known[key]))
    _replace(connection, "files", (place.file, name, place.offset, int(place.skipping), points))


def _series_row(key: Key, one: Known) -> tuple[object, ...]:
    return (one.id, *key, one.numbers, one.others, *(one.counts[kind] for kind in KINDS[1:]))


def _replace(connection: apsw.Connection, table: str, row: tuple[Any, ...]) -> None:
    marks = ", ?" * len(row)
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?{marks})", (*row, _sum(*row)))


_CHUNKS = "SELECT series, file, nr, count, stepped, checksum, summary, id FROM chunks WHERE series = ?"


def _append(connection: apsw.Connection, series: int, file: int, points: Points) -> None:
    nr, start = 0, 0
    for told in connection.execute(_CHUNKS + " AND file = ? ORDER BY nr DESC LIMIT 1", (series, file)):
        row, last = _chunk(connection, *told)
        nr = last.nr + 1
        if last.count < CHUNK:
            nr, start = last.nr, CHUNK - last.count
            whole = last.load()
            whole.extend(points.part(0, start))
            _put_chunk(connection, (series, file, nr), whole, summarise_chunk(whole, last.summary, last.count), row)
            nr += 1
    for at in range(start, len(points), CHUNK):
        chunk = points.part(at, at + CHUNK)
        _put_chunk(connection, (series, file, nr), chunk, summarise_chunk(chunk))
        nr += 1


def _put_chunk(
    connection: apsw.Connection, where: tuple[int, int, int], chunk: Points, summary: bytes, row: int | None = None
) -> None:
    told = (*where, len(chunk), len(chunk) - chunk.steps.count(NO_STEP))
    checksum = crc32(summary, _sum(*told))
    connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (row, *told, summary, checksum))
    body, row = chunk.pack(), row or connection.last_insert_rowid()
    connection.execute("INSERT OR REPLACE INTO bodies VALUES (?, ?, ?)", (row, crc32(body, row), body))


# -- reading ---------------------------------------------------------------------------------------


def of_child(known: dict[Key, Known], child: str) -> dict[str, Known]:
    """The series of a child, by name; of the run itself where the run is that child."""
    if (child, "") in known and known[child, ""].counts[SAME]:
        child = ""
    return {name: one for (whose, name), one in known.items() if whose == child}


def chunks(connection: apsw.Connection, series: Known) -> Iterator[tuple[bytes, Chunk]]:
    """By file and number, with the file's name. Their points are loaded when asked for."""
    names = {place.file: name for name, place in places(connection).items()}
    found: dict[bytes, list[Chunk]] = {}
    for told in connection.execute(_CHUNKS + " ORDER BY file, nr", (series.id,)):
        _, chunk = _chunk(connection, *told)
        found.setdefault(_named(names, told[1]), []).append(chunk)
    if sum(chunk.count for part in found.values() for chunk in part) != series.numbers:
        raise Damaged("points are missing")
    for name in sorted(found):
        for chunk in found[name]:
            yield name, chunk


def _named(names: dict[int, bytes], file: int) -> bytes:
    if file not in names:
        raise Damaged("a file is missing")
    return names[file]


def _chunk(connection: apsw.Connection, *told: Any) -> tuple[int, Chunk]:
    *head, checksum, summary, row = told
    if not isinstance(summary, bytes) or crc32(summary, _sum(*head)) != checksum:
        raise Damaged("a chunk")
    nr, count, stepped = head[2:]
    return row, Chunk(nr, count, stepped, summary, partial(_load, connection, row, count))


def _load(connection: apsw.Connection, row: int, count: int) -> Points:
    for checksum, body in connection.execute("SELECT checksum, body FROM bodies WHERE id = ?", (row,)):
        if not isinstance(body, bytes) or crc32(body, row) != checksum or len(body) != 24 * count:
            raise Damaged("a body")
        return Points.unpack(body)
    raise Damaged("a body is missing")


def others(connection: apsw.Connection, series: Known, kind: str, newest: int | None) -> dict[bytes, list[Other]]:
    """By file, in the order of their lines; of each file all, or the last ones down to ``newest`` beginnings."""
    found = {}
    count = 0
    query = """SELECT series, file, kind, first, step, time, way, start, body, checksum
        FROM others WHERE series = ? AND file = ? ORDER BY id DESC"""
    for name, place in sorted(places(connection).items()):
        mine: list[Other] = []
        begun = 0
        for told in connection.execute(query, (series.id, place.file)):
            if newest is not None and begun >= newest:
                break
            other = Other(*_sound(*told)[2:])
            count += 1
            if other.kind == kind:
                mine.append(other)
                begun += other.first
        found[name] = mine[::-1]
    if newest is None and count != series.others:
        raise Damaged("values are missing")
    return found
