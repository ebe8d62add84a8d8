"""Tables of a run's ``series.db``: chunks of points, other values, and read positions.

Every row has a checksum. Series and files store their number of points, so that readers detect lost
or changed data. Only one process writes at a time, and it ensures that names are unique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import apsw

from ...remote.shared.metric_limits import rank_number, source_of
from ..database import Damaged
from ..metric_precedence import shown_names
from .downsampling import Chunk
from .metric_lines import Key, Lines, OtherValue
from .points import BYTE_ORDER, CHUNK, NO_STEP, Points, summarize_chunk

NUMBER, VALUE, ROW, SAME = KINDS = ("number", "value", "row", "same")
VERSION = 4 + BYTE_ORDER
ALL_RANKS = "\x1franks"  # instead of the name of a nested run
_SOURCE = "\x1f"  # marks the owner of series that do not come from the in-run library

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


class FilePosition(NamedTuple):
    """Position up to which a metrics file has been read."""

    file: int
    offset: int
    skipping: bool  # the offset is inside an overlong line
    points: int  # total number of points and other values read


@dataclass
class SeriesInfo:
    """Counts of a series. A long value counts once, regardless of its number of pieces."""

    id: int
    numbers: int = 0
    others: int = 0  # rows in the ``others`` table
    counts: Counter[str] = field(default_factory=Counter)  # by kind, except numbers


def create(connection: apsw.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check(connection: apsw.Connection) -> None:
    """Raise Damaged if the file has a different schema or if rows are missing."""
    if list(connection.execute("PRAGMA user_version")) != [(VERSION,)]:
        raise Damaged("another version")
    if {text for (text,) in connection.execute("SELECT sql FROM sqlite_schema")} != set(_TABLES):
        raise Damaged("other tables")
    expected = sum(position.points for position in read_positions(connection).values())
    if expected != sum(series.numbers + series.others for series in read_series(connection).values()):
        raise Damaged("points are missing")


def _checksum(*values: object) -> int:
    # SQLite drops the sign of zero and returns -0.0 as 0.0.
    texts = ("0.0" if (text := repr(value)) == "-0.0" else text for value in values)
    return crc32("\x1f".join(texts).encode("utf-8"))


def _verify_row(*values: Any) -> tuple[Any, ...]:
    """Verify a row, whose last value is its checksum, and return the other values."""
    if _checksum(*values[:-1]) != values[-1]:
        raise Damaged("a row")
    return values[:-1]


# -- writing ---------------------------------------------------------------------------------------


def read_positions(connection: apsw.Connection) -> dict[bytes, FilePosition]:
    positions = {}
    for row in connection.execute("SELECT id, name, offset, skipping, points, checksum FROM files"):
        file, name, offset, skipping, points = _verify_row(*row)
        positions[name] = FilePosition(file, offset, bool(skipping), points)
    return positions


def read_series(connection: apsw.Connection) -> dict[Key, SeriesInfo]:
    result = {}
    for row in connection.execute("SELECT * FROM series"):
        number, child, name, numbers, others, *counts = _verify_row(*row)
        result[child, name] = SeriesInfo(number, numbers, others, Counter(dict(zip(KINDS[1:], counts, strict=True))))
    return result


def write(
    connection: apsw.Connection, series_by_key: dict[Key, SeriesInfo], name: bytes, position: FilePosition, lines: Lines
) -> None:
    """Write the lines parsed since the last read of a file, and the new read position."""
    changed, points = set(), position.points
    for key, new in lines.points.items():
        if new:
            series = series_by_key.setdefault(key, SeriesInfo(len(series_by_key) + 1))
            _append_points(connection, series.id, position.file, new)
            series.numbers += len(new)
            points += len(new)
            changed.add(key)
    for key, other in lines.others:
        series = series_by_key.setdefault(key, SeriesInfo(len(series_by_key) + 1))
        row = (series.id, position.file, *other)
        connection.execute("INSERT INTO others VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, _checksum(*row)))
        series.others += 1
        series.counts[other.kind] += other.first
        points += 1
        changed.add(key)
    for key in sorted(changed):
        _replace(connection, "series", _series_row(key, series_by_key[key]))
    _replace(connection, "files", (position.file, name, position.offset, int(position.skipping), points))


def _series_row(key: Key, series: SeriesInfo) -> tuple[object, ...]:
    return (series.id, *key, series.numbers, series.others, *(series.counts[kind] for kind in KINDS[1:]))


def _replace(connection: apsw.Connection, table: str, row: tuple[Any, ...]) -> None:
    marks = ", ?" * len(row)
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?{marks})", (*row, _checksum(*row)))


_SELECT_CHUNKS = "SELECT series, file, nr, count, stepped, checksum, summary, id FROM chunks WHERE series = ?"


def _append_points(connection: apsw.Connection, series: int, file: int, points: Points) -> None:
    nr, start = 0, 0
    for record in connection.execute(_SELECT_CHUNKS + " AND file = ? ORDER BY nr DESC LIMIT 1", (series, file)):
        row, last = _decode_chunk(connection, *record)
        nr = last.nr + 1
        if last.count < CHUNK:
            nr, start = last.nr, CHUNK - last.count
            whole = last.load()
            whole.extend(points.part(0, start))
            _write_chunk(connection, (series, file, nr), whole, summarize_chunk(whole, last.summary, last.count), row)
            nr += 1
    for at in range(start, len(points), CHUNK):
        chunk = points.part(at, at + CHUNK)
        _write_chunk(connection, (series, file, nr), chunk, summarize_chunk(chunk))
        nr += 1


def _write_chunk(
    connection: apsw.Connection, key: tuple[int, int, int], chunk: Points, summary: bytes, row: int | None = None
) -> None:
    head = (*key, len(chunk), len(chunk) - chunk.steps.count(NO_STEP))
    checksum = crc32(summary, _checksum(*head))
    connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (row, *head, summary, checksum))
    body, row = chunk.pack(), row or connection.last_insert_rowid()
    connection.execute("INSERT OR REPLACE INTO bodies VALUES (?, ?, ?)", (row, crc32(body, row), body))


# -- reading ---------------------------------------------------------------------------------------


def owner_of(file: bytes) -> str:
    """Return the owner of the series in a metrics file: "" for the run itself, or another source of metrics."""
    source = source_of(file.decode("ascii", "replace"))
    return _SOURCE + source if source else ""


def select_child(series_by_key: dict[Key, SeriesInfo], child: str) -> dict[str, SeriesInfo]:
    """Return the series of a nested run by name, or the run's own if ``child`` is the run itself.

    With ``ALL_RANKS``, the run's series include those of all ranks, such as ``rank 2/loss``.
    """
    with_ranks, child = child == ALL_RANKS, "" if child == ALL_RANKS else child
    if (child, "") in series_by_key and series_by_key[child, ""].counts[SAME]:
        child = ""
    result = {name: series for (owner, name), series in series_by_key.items() if owner == child}
    if not child:
        external: dict[str, dict[str, SeriesInfo]] = {}
        for (owner, name), series in series_by_key.items():
            if owner.startswith(_SOURCE):
                external.setdefault(owner[len(_SOURCE) :], {})[name] = series
        names = shown_names(result, external)
        for (source, name), shown in names.items():
            result[shown] = external[source][name]
        for source in sorted(external, key=rank_number) if with_ranks else ():
            for name, series in external[source].items():
                if (source, name) not in names:
                    result.setdefault(f"{source}/{name}", series)
    return result


def read_chunks(connection: apsw.Connection, series: SeriesInfo) -> Iterator[tuple[bytes, Chunk]]:
    """Yield chunks with their file names, sorted by file and number. Points are loaded on demand."""
    names = {position.file: name for name, position in read_positions(connection).items()}
    by_file: dict[bytes, list[Chunk]] = {}
    for record in connection.execute(_SELECT_CHUNKS + " ORDER BY file, nr", (series.id,)):
        _, chunk = _decode_chunk(connection, *record)
        by_file.setdefault(_file_name(names, record[1]), []).append(chunk)
    if sum(chunk.count for file_chunks in by_file.values() for chunk in file_chunks) != series.numbers:
        raise Damaged("points are missing")
    for name in sorted(by_file):
        for chunk in by_file[name]:
            yield name, chunk


def _file_name(names: dict[int, bytes], file: int) -> bytes:
    if file not in names:
        raise Damaged("a file is missing")
    return names[file]


def _decode_chunk(connection: apsw.Connection, *record: Any) -> tuple[int, Chunk]:
    *head, checksum, summary, row = record
    if not isinstance(summary, bytes) or crc32(summary, _checksum(*head)) != checksum:
        raise Damaged("a chunk")
    nr, count, stepped = head[2:]
    return row, Chunk(nr, count, stepped, summary, partial(_load_points, connection, row, count))


def _load_points(connection: apsw.Connection, row: int, count: int) -> Points:
    for checksum, body in connection.execute("SELECT checksum, body FROM bodies WHERE id = ?", (row,)):
        if not isinstance(body, bytes) or crc32(body, row) != checksum or len(body) != 24 * count:
            raise Damaged("a body")
        return Points.unpack(body)
    raise Damaged("a body is missing")


def read_others(
    connection: apsw.Connection, series: SeriesInfo, kind: str, newest: int | None
) -> dict[bytes, list[OtherValue]]:
    """Return other values by file, in line order: all, or at least each file's ``newest`` values."""
    by_file = {}
    count = 0
    query = """SELECT series, file, kind, first, step, time, way, start, body, checksum
        FROM others WHERE series = ? AND file = ? ORDER BY id DESC"""
    for name, position in sorted(read_positions(connection).items()):
        values: list[OtherValue] = []
        started = 0
        for row in connection.execute(query, (series.id, position.file)):
            if newest is not None and started >= newest:
                break
            other = OtherValue(*_verify_row(*row)[2:])
            count += 1
            if other.kind == kind:
                values.append(other)
                started += other.first
        by_file[name] = values[::-1]
    if newest is None and count != series.others:
        raise Damaged("values are missing")
    return by_file
