"""The tables ``value_names``, ``run_numbers``, and ``run_texts``: the values of all runs, by name.

Each name has the number of its rows and totals of their contents. Reading the values of a name verifies them against
these totals, so that a damaged table never gives a wrong list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any
from zlib import crc32

import apsw

from .database import Damaged
from .run_values import Value, Values
from .sqlite_values import checksum

BY_VALUE = "INDEXED BY run_numbers_by_value"
_FIELDS = "numbers, numbers_total, spans_total, texts, texts_total"
_SELECT_NAME = f"SELECT id, kind, name, {_FIELDS}, checksum FROM value_names"
_INSERT_NAME = f"INSERT INTO value_names (id, kind, name, {_FIELDS}, checksum) VALUES ({', '.join('?' * 9)})"
_UPDATE_NAME = f"UPDATE value_names SET ({_FIELDS}, checksum) = ({', '.join('?' * 6)}) WHERE id = ?"
_INSERT_NUMBER = "INSERT INTO run_numbers (name, run, number, least, greatest) VALUES (?, ?, ?, ?, ?)"
_INSERT_TEXT = "INSERT INTO run_texts (name, run, text) VALUES (?, ?, ?)"
_SELECT_TEXTS = "SELECT run, text FROM run_texts WHERE name = ?"
_MASK = 0xFFFFFFFF
_NULL = -1  # no number has this sort key
_RUN_BITS = 0xFFFFF  # keeps the products below 2**63
_FEW = 4096  # names with fewer rows are looked up completely; of others, every 16th run
_SAMPLED = 15


class Tree(Enum):
    """A part of the tables that queries read, and that is verified separately."""

    NUMBERS = "numbers"  # numbers, minimum, and maximum by run
    BY_VALUE = "values"  # numbers by value
    TEXTS = "texts"


@dataclass
class Name:
    """The name of a metric or parameter, with the totals of its rows."""

    id: int
    kind: str
    name: str
    numbers: int = 0
    numbers_total: int = 0
    spans_total: int = 0
    texts: int = 0
    texts_total: int = 0

    def add(self, run: int, value: Value, sign: int = 1) -> None:
        """Add a value to the totals, or subtract it."""
        if _has_number(value):
            self.numbers += sign
            self.numbers_total += sign * _mix(value.number, run)
            self.spans_total += sign * (_mix(value.least, run) + _mix(value.greatest, run + 1))
        if value.text is not None:
            self.texts += sign
            self.texts_total += sign * _text_checksum(run, value.text)

    def row(self) -> tuple[object, ...]:
        """Return the row for the table."""
        content = tuple(vars(self).values())
        return (*content, checksum(content))


def _has_number(value: Value) -> bool:
    return value[:3] != (None, None, None)


def _mix(key: int | None, run: int) -> int:
    key = _NULL if key is None else key
    return (_mix_factor(key) * ((run & _RUN_BITS) * 2 + 1)) & _MASK


def _mix_sql(column: str, run: str = "run") -> str:
    key = f"coalesce({column}, {_NULL})"
    return f"((({key} >> 32) * 31 + ({key} & {_MASK})) * (({run} & {_RUN_BITS}) * 2 + 1) & {_MASK})"


def _mix_null_sql(run: str = "run") -> str:
    """Return the expression for a missing value, which is faster."""
    return f"({_mix_factor(_NULL)} * (({run} & {_RUN_BITS}) * 2 + 1) & {_MASK})"


def _mix_factor(key: int) -> int:
    return (key >> 32) * 31 + (key & _MASK)


_SPANS_SQL = (  # most values have none
    f"CASE WHEN coalesce(least, greatest) IS NULL THEN {_mix_null_sql()} + {_mix_null_sql('(run + 1)')}"
    f" ELSE {_mix_sql('least')} + {_mix_sql('greatest', '(run + 1)')} END"
)


def _text_checksum(run: int, text: str) -> int:
    return crc32(f"{run}\x1f{text}".encode("utf-8", "replace"))


# -- reading -------------------------------------------------------------------------------------------


def find_names(connection: apsw.Connection, kind: str, name: str | None = None) -> list[Name]:
    """Return the names of a kind; with ``name``, those that differ from it only by ``-`` and ``_``, it first."""
    if name is None:
        return list(_read_names(connection, "NOT INDEXED WHERE kind = ?", (kind,)))
    where = "NOT INDEXED WHERE kind = ?1 AND (name = ?2 OR replace(name, '-', '_') = ?3)"
    names = list(_read_names(connection, where, (kind, name, name.replace("-", "_"))))
    spellings = [name, name.replace("-", "_"), name.replace("_", "-")]
    return sorted(names, key=lambda row: spellings.index(row.name) if row.name in spellings else len(spellings))


def _read_names(connection: apsw.Connection, where: str, values: tuple[str, ...]) -> Iterator[Name]:
    for *content, stored in connection.execute(f"{_SELECT_NAME} {where}", values):
        if checksum(content) != stored:
            raise Damaged("checksum of a name of values")
        yield Name(*content)


def verify_names(connection: apsw.Connection, count: int) -> None:
    """Verify the rows of all names, but not their values."""
    if sum(1 for _ in _read_names(connection, "NOT INDEXED", ())) != count:
        raise Damaged("number of names of values")


def count_names(connection: apsw.Connection) -> int:
    return int(next(iter(connection.execute("SELECT count(*) FROM value_names NOT INDEXED")))[0])


def verify_all(connection: apsw.Connection) -> None:
    """Verify all values."""
    for name in list(_read_names(connection, "NOT INDEXED", ())):
        for tree in Tree:
            verify(connection, name, tree)


def verify(connection: apsw.Connection, name: Name, tree: Tree) -> None:
    """Verify the values of a name, and that each can be looked up."""
    if tree is Tree.TEXTS:
        _verify_texts(connection, name)
        return
    sampled = 0 if name.numbers < _FEW else _SAMPLED
    samples = f"coalesce(sum(run & {sampled} = 0), 0)"
    totals = [name.numbers_total]
    columns = f"count(*), {samples}, coalesce(sum({_mix_sql('number')}), 0)"
    # ``least`` is not in the index, so that SQLite reads the table.
    hint, some_column, lookup = "", "coalesce(a.least, 0)", "b.run = a.run"
    if tree is Tree.BY_VALUE:
        hint, some_column, lookup = BY_VALUE, "*", "b.run = a.run AND b.number IS a.number"
    else:
        columns += f", coalesce(sum({_SPANS_SQL}), 0)"
        totals.append(name.spans_total)
    scan = f"SELECT {columns} FROM run_numbers {hint} WHERE name = ?"
    count, sample_count, *found = connection.execute(scan, (name.id,)).fetchall()[0]
    # Rows on swapped pages are all present, but lookups do not find them.
    again = (
        f"SELECT count({some_column}) FROM run_numbers AS a {hint} CROSS JOIN run_numbers AS b {hint}"
        f" ON b.name = a.name AND {lookup} WHERE a.name = ? AND a.run & {sampled} = 0"
    )
    if count != name.numbers or found != totals:
        raise Damaged("numbers of a name")
    if connection.execute(again, (name.id,)).fetchall()[0][0] != sample_count:
        raise Damaged("order of the numbers of a name")


def _verify_texts(connection: apsw.Connection, name: Name) -> None:
    rows: list[tuple[Any, ...]] = connection.execute(_SELECT_TEXTS, (name.id,)).fetchall()
    runs = [run for run, _ in rows]
    if runs != sorted(runs) or len(rows) != name.texts:
        raise Damaged("order of the texts of a name")
    if sum(_text_checksum(run, text) for run, text in rows) != name.texts_total:
        raise Damaged("texts of a name")


# -- writing -------------------------------------------------------------------------------------------


class ValueWriter:
    """Writes the values of runs. ``flush`` writes the totals of the names that changed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._names: dict[tuple[str, str], Name] = {}
        self._next_id = 0
        self._stored: set[int] = set()

    def write(self, run: int, old: Values, new: Values) -> None:
        """Replace the values of the run with this row number."""
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        for key in changed:
            name = self._name(key)
            if key in old:
                name.add(run, old[key], -1)
                self._connection.execute("DELETE FROM run_numbers WHERE name = ? AND run = ?", (name.id, run))
                if old[key].text is not None:
                    self._connection.execute("DELETE FROM run_texts WHERE name = ? AND run = ?", (name.id, run))
        self._insert(run, [(self._name(key), new[key]) for key in changed if key in new])

    def _insert(self, run: int, values: Iterable[tuple[Name, Value]]) -> None:
        numbers, texts = [], []
        for name, value in values:
            name.add(run, value)
            if _has_number(value):
                numbers.append((name.id, run, *value[:3]))
            if value.text is not None:
                texts.append((name.id, run, value.text))
        self._connection.executemany(_INSERT_NUMBER, numbers)
        self._connection.executemany(_INSERT_TEXT, texts)

    def _name(self, key: tuple[str, str]) -> Name:
        name = self._names.get(key)
        if name is None:
            # If a damaged index does not find the name, inserting it fails.
            stored = list(_read_names(self._connection, "WHERE kind = ? AND name = ?", key))
            self._stored |= {row.id for row in stored}
            name = self._names[key] = stored[0] if stored else Name(self._new_id(), *key)
        return name

    def _new_id(self) -> int:
        if not self._next_id:
            self._next_id = next(iter(self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM value_names")))[0]
        self._next_id += 1
        return self._next_id - 1

    def flush(self) -> int:
        """Write the names that changed, and return by how many names there are more."""
        before, after = len(self._stored), 0
        for name in self._names.values():
            if name.numbers or name.texts:
                row = name.row()
                if name.id in self._stored:
                    self._connection.execute(_UPDATE_NAME, (*row[3:], name.id))
                else:
                    self._connection.execute(_INSERT_NAME, row)
                after += 1
            elif name.id in self._stored:
                self._connection.execute("DELETE FROM value_names WHERE id = ?", (name.id,))
        self._names, self._stored, self._next_id = {}, set(), 0
        return after - before
