"""Read the SQLite database of MLflow (``sqlite:///mlflow.db``).

The file is not trusted. A copy is opened, with the journal that a killed script left. Only plain tables with the
columns of MLflow are read, within limits on time and memory.
"""

from __future__ import annotations

import math
import os
import sqlite3
import sys
import time
from contextlib import closing

from ..run_reader import open_regular_file, read_descriptor
from ..shared.folder_tree import NEW, FolderHandles, copy
from .mlflow_run import MAX_ENTRIES, StoredRun, UnreadableStore, as_milliseconds
from .script_runs import MAX_NAME, MAX_RUNS, MAX_VALUE

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

    from .mlflow_run import Point

MAX_SIZE = 1 << 28  # bytes
_MAGIC = b"SQLite format 3\0"
_JOURNALS = ("-journal", "-wal")
RUN_TABLES = {
    "runs": ("run_uuid", "name", "status", "start_time", "end_time", "lifecycle_stage", "artifact_uri"),
    "params": ("key", "value", "run_uuid"),
    "tags": ("key", "value", "run_uuid"),
    "metrics": ("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
}
_SETTINGS = (
    "query_only = 1",
    "trusted_schema = 0",
    "cell_size_check = 1",
    "mmap_size = 0",
    "hard_heap_limit = %d" % (1 << 27),
)
# A message of SQLite with a damaged name is not valid UTF-8, which is a ValueError.
_ERRORS = (sqlite3.Error, ValueError, OverflowError, MemoryError)
_STEPS = 10000  # SQLite instructions between two checks of the time
_INFINITY = sys.float_info.max  # as MLflow stores it


def copy_database(handles: FolderHandles, path: str, folder: str, since: float) -> str:
    """Copy a database and its journals to ``folder``, and return the path of the copy.

    Return "" if the file is not a database or was not changed since this time. Raise UnreadableStore if it is too
    large, and OSError if it cannot be copied.
    """
    descriptor = open_regular_file(handles, path)
    if descriptor is None:
        return ""
    try:
        if read_descriptor(descriptor, 0, len(_MAGIC)) != _MAGIC or os.fstat(descriptor).st_mtime < since:
            return ""
        os.makedirs(folder, 0o700)
        target = os.path.join(folder, "copy.db")
        _copy(descriptor, target)
    finally:
        os.close(descriptor)
    for suffix in _JOURNALS:
        descriptor = open_regular_file(handles, path + suffix)
        if descriptor is not None:
            try:
                _copy(descriptor, target + suffix)
            finally:
                os.close(descriptor)
    return target


def _copy(source: int, target: str) -> None:
    status = os.fstat(source)
    if status.st_size > MAX_SIZE:
        raise UnreadableStore("it is larger than %d MiB" % (MAX_SIZE >> 20))
    handle = os.open(target, NEW, 0o600)
    try:
        copy(source, handle, status.st_size, status.st_blocks)
    finally:
        os.close(handle)


class MlflowDatabase:
    """An open copy of a database. The methods raise UnreadableStore."""

    def __init__(self, path: str, deadline: float) -> None:
        try:
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
            self._connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _STEPS)
            for setting in _SETTINGS:
                self._connection.execute("PRAGMA " + setting)
        except sqlite3.Error as error:
            raise UnreadableStore(str(error)) from None

    def close(self) -> None:
        self._connection.close()

    def is_mlflow(self) -> bool:
        """Return whether the tables of MLflow exist. Raise UnreadableStore if only some of their columns do."""
        tables = {name for (name,) in self.select("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables.issuperset(RUN_TABLES) or "alembic_version" not in tables:
            return False
        if not self.has_columns(RUN_TABLES):
            raise UnreadableStore("its schema is unknown")
        return True

    def has_columns(self, tables: Dict[str, Tuple[str, ...]]) -> bool:
        """Return whether these tables have these columns. Virtual tables, which run code, do not count."""
        plain = {name for (name,) in self.select("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'")}
        return plain.issuperset(tables) and all(
            {row[1] for row in self.select("PRAGMA table_info(%s)" % name)}.issuperset(columns)
            for name, columns in tables.items()
        )

    def copy_to(self, path: str) -> None:
        """Write the database to one file, without a journal."""
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as target:
                self._connection.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
        except _ERRORS as error:
            raise UnreadableStore(str(error) or "out of memory") from None

    def runs(self, since: int) -> List[StoredRun]:
        """Return the runs that started at this time, in milliseconds, or later."""
        query = "SELECT %s FROM runs WHERE start_time >= ? ORDER BY start_time, rowid LIMIT ?" % ", ".join(
            _text(name) if name not in ("start_time", "end_time") else name for name in RUN_TABLES["runs"]
        )
        runs = []
        for row in self.select(query, since, MAX_RUNS):
            fields = dict(zip(RUN_TABLES["runs"], row), run_id=row[0] or "")
            try:
                runs.append(StoredRun(fields, self._entries("params", row[0]), self._entries("tags", row[0])))
            except KeyError:
                raise UnreadableStore("its schema is unknown") from None
        return runs

    def _entries(self, table: str, run_id: str) -> Dict[str, str]:
        query = "SELECT %s, %s FROM %s WHERE run_uuid = ? LIMIT ?" % (_text("key"), _text("value"), table)
        return {key: value or "" for key, value in self.select(query, run_id, MAX_ENTRIES) if key}

    def points(self, run_id: str) -> Iterator[Point]:
        """Yield the points of a run in the order in which they were logged."""
        query = "SELECT %s, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY rowid"
        for name, value, when, step, is_nan in self.select(query % _text("key"), run_id):
            if name and isinstance(value, (int, float)) and isinstance(step, int):
                value = math.nan if is_nan else float(value)
                if abs(value) == _INFINITY:
                    value = math.copysign(math.inf, value)
                yield name, value, as_milliseconds(when), step

    def select(self, query: str, *values: Any) -> Iterator[Tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query, values)
        except _ERRORS as error:
            raise UnreadableStore(str(error) or "out of memory") from None


def _text(column: str) -> str:
    """Return an SQL expression for a text that is cut to the maximum length."""
    return "substr(CAST(%s AS TEXT), 1, %d)" % (column, MAX_NAME if column == "key" else MAX_VALUE)
