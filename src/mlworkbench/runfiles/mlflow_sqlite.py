"""Read MLflow's SQLite file in the outputs of a run. MLflow is not imported.

The file is untrusted: it may come from another machine. Only ordinary tables are read, with limits on sizes and time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from ..errors import HistoryError, UnknownName
from ..remote.shared.layout import MLFLOW_DATABASE, RunFolder
from .output_file import open_output
from .output_manifest import read_outputs

Row = Mapping[str, Any]

MAX_TEXT = 1 << 20  # maximum characters of a value
_MAX_VALUE = 64 << 20  # bytes; SQLite refuses larger values
_MAX_SECONDS = 3.0
_BUSY_TIMEOUT = 1000  # milliseconds to wait for a script that is writing
_STEPS = 20_000  # instructions between two checks of the time
_MAX_COLUMNS = 200


class MlflowDatabase:
    """An open database, read-only. Each method raises HistoryError if the file is damaged or reading takes too long."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        deadline = time.monotonic() + _MAX_SECONDS
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of an ordinary table; none if it does not exist. Views and virtual tables are not read."""
        query = "SELECT 1 FROM pragma_table_list WHERE schema = 'main' AND name = ? AND type = 'table'"
        if not self._execute(query, (table,)):
            return frozenset()
        rows = self._execute("SELECT name FROM pragma_table_info(?) LIMIT ?", (table, _MAX_COLUMNS))
        return frozenset(str(name) for (name,) in rows)

    def select(self, table: str, columns: Sequence[str], rest: str = "", values: Sequence[Any] = ()) -> list[Row]:
        """Return rows of a table. Columns that this version of MLflow lacks are None; long texts are truncated."""
        existing = self.columns(table)
        if not existing:
            return []
        fields = ", ".join(_field(name) if name in existing else "NULL" for name in columns)
        rows = self._execute(f"SELECT {fields} FROM {table} {rest}", values)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def _execute(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            return list(self._connection.execute(query, tuple(values)))
        except (apsw.Error, MemoryError, ValueError) as error:
            raise unreadable(error) from None


def _field(name: str) -> str:
    """Truncate text before SQLite returns it."""
    return f"CASE typeof({name}) WHEN 'text' THEN substr({name}, 1, {MAX_TEXT}) WHEN 'blob' THEN NULL ELSE {name} END"


@contextmanager
def open_database(folder: RunFolder) -> Iterator[MlflowDatabase | None]:
    """Open the database of a run, or yield None if the script did not create one.

    Raise HistoryError if the file is damaged or was not downloaded from the target yet.
    """
    path = _find(folder)
    if path is None:
        yield None
        return
    try:
        # Without "immutable", SQLite respects the locks of a running script.
        flags = apsw.SQLITE_OPEN_READONLY | getattr(apsw, "SQLITE_OPEN_PRIVATECACHE", 0)
        connection = apsw.Connection(path, flags=flags)
    except apsw.Error as error:
        raise unreadable(error) from None
    try:
        _restrict(connection)
        yield MlflowDatabase(connection)
    finally:
        connection.close()


def has_database(folder: RunFolder) -> bool:
    """Return whether the script used a part of MLflow that needs the database."""
    try:
        return _find(folder) is not None
    except HistoryError:
        return True  # it exists but cannot be read


def _find(folder: RunFolder) -> str | None:
    try:
        os.close(open_output(folder, MLFLOW_DATABASE))
        return os.path.join(folder.outputs, *MLFLOW_DATABASE.split("/"))
    except UnknownName:
        pass
    # Earlier versions of mlw left the file in the working copy.
    earlier = os.path.join(folder.work, ".mlflow", "mlflow.db")
    if os.path.isfile(earlier) and not os.path.islink(earlier):
        return earlier
    if _is_listed(folder):
        run_id = os.path.basename(folder.path)
        hint = f"download the outputs with 'mlw history download -r {run_id}'"
        raise HistoryError("MLflow's database is not on this machine yet", hint)
    return None


def _is_listed(folder: RunFolder) -> bool:
    try:
        return any(output.path == MLFLOW_DATABASE for output in read_outputs(folder.manifest))
    except (OSError, HistoryError):
        return False  # the run has not ended, or the list is damaged


def _restrict(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(_BUSY_TIMEOUT)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)


def unreadable(error: Exception) -> HistoryError:
    if isinstance(error, apsw.InterruptError):
        return HistoryError("MLflow's database is too slow to read")
    return HistoryError(f"MLflow's database cannot be read: {error}")


# -- values --------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:100]


def number_of(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e20 else None  # false for NaN


def integer_of(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
