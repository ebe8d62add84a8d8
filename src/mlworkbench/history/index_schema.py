"""The tables of the index."""

from __future__ import annotations

from collections.abc import Callable

import apsw

VERSION = 4

# The ``runs`` table is narrow because lists scan it; ``bodies`` contains data needed only for displayed runs. Each row
# has a checksum. The single row of ``account`` contains the number of rows and the sum of their checksums.
#
# ``run_numbers`` and ``run_texts`` contain metrics and parameters, by the ``id`` of their name and the ``seq`` of the
# run; see ``run_values`` and ``value_index``. Conditions read them by run, or a range of numbers from the index. Texts
# have no index: most conditions on texts, such as optimizer = "adam", match so many runs that a scan is as fast.
TABLES = (
    """CREATE TABLE runs (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL UNIQUE, number INTEGER NOT NULL,
    project TEXT NOT NULL, created INTEGER NOT NULL, status TEXT NOT NULL, final INTEGER NOT NULL,
    hidden INTEGER NOT NULL, script TEXT NOT NULL, target TEXT NOT NULL, parent TEXT NOT NULL, facts TEXT NOT NULL,
    checksum INTEGER NOT NULL
)""",
    """CREATE TABLE bodies (
    seq INTEGER PRIMARY KEY, spec TEXT NOT NULL, state TEXT NOT NULL, reading TEXT NOT NULL, submitter TEXT NOT NULL,
    checksum INTEGER NOT NULL
)""",
    """CREATE TABLE account (
    one INTEGER PRIMARY KEY, runs INTEGER NOT NULL, unfinished INTEGER NOT NULL, total INTEGER NOT NULL,
    names INTEGER NOT NULL, generation INTEGER NOT NULL, checksum INTEGER NOT NULL
)""",
    """CREATE TABLE value_names (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, numbers INTEGER NOT NULL,
    numbers_total INTEGER NOT NULL, spans_total INTEGER NOT NULL, texts INTEGER NOT NULL, texts_total INTEGER NOT NULL,
    checksum INTEGER NOT NULL, UNIQUE (kind, name)
)""",
    """CREATE TABLE run_numbers (
    name INTEGER, run INTEGER, number INTEGER, least INTEGER, greatest INTEGER, PRIMARY KEY (name, run)
) WITHOUT ROWID""",
    "CREATE TABLE run_texts (name INTEGER, run INTEGER, text TEXT NOT NULL, PRIMARY KEY (name, run)) WITHOUT ROWID",
    "CREATE INDEX runs_by_number ON runs (project, number)",
    "CREATE INDEX runs_unfinished ON runs (seq) WHERE final = 0",
    "CREATE INDEX runs_by_parent ON runs (parent) WHERE parent != ''",
)
# Created when the tables are filled, because sorting is faster than inserting in random order.
LATE_INDEX = "CREATE INDEX run_numbers_by_value ON run_numbers (name, number)"

Step = Callable[[apsw.Connection], None]


def create(connection: apsw.Connection) -> None:
    for statement in TABLES:
        connection.execute(statement)


def rename_old_tables(connection: apsw.Connection) -> None:
    """Rename the tables of an older version and create empty ones. The caller migrates the rows."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    indexes = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    for name in [name for (name,) in connection.execute(indexes)]:
        connection.execute(f'DROP INDEX "{name}"')
    for name in tables & {"runs", "bodies"}:
        connection.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    for name in tables - {"runs", "bodies"}:
        connection.execute(f'DROP TABLE "{name}"')
    create(connection)


def has_expected_schema(connection: apsw.Connection) -> bool:
    """Return whether the file has exactly the expected tables and indexes."""
    statements = {text for (text,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    return statements == {*TABLES, LATE_INDEX}
