"""The tables of the index."""

from __future__ import annotations

from collections.abc import Callable

import apsw

VERSION = 3

# What a list looks at is narrow, and apart from what only the runs that are shown need. Every row has a checksum of
# its content; the one row of ``account`` says how many rows there must be, and what their checksums add up to.
NOW = (
    """CREATE TABLE runs (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL UNIQUE, number INTEGER NOT NULL,
    project TEXT NOT NULL, created INTEGER NOT NULL, status TEXT NOT NULL, final INTEGER NOT NULL,
    hidden INTEGER NOT NULL, script TEXT NOT NULL, target TEXT NOT NULL, parent TEXT NOT NULL, facts TEXT NOT NULL,
    metrics TEXT NOT NULL, checksum INTEGER NOT NULL
)""",
    """CREATE TABLE bodies (
    seq INTEGER PRIMARY KEY, spec TEXT NOT NULL, state TEXT NOT NULL, reading TEXT NOT NULL, submitter TEXT NOT NULL,
    checksum INTEGER NOT NULL
)""",
    """CREATE TABLE account (
    one INTEGER PRIMARY KEY, runs INTEGER NOT NULL, unfinished INTEGER NOT NULL, total INTEGER NOT NULL,
    generation INTEGER NOT NULL, checksum INTEGER NOT NULL
)""",
    "CREATE INDEX runs_by_number ON runs (project, number)",
    "CREATE INDEX runs_unfinished ON runs (seq) WHERE final = 0",
    "CREATE INDEX runs_by_parent ON runs (parent) WHERE parent != ''",
)

Step = Callable[[apsw.Connection], None]


def create(connection: apsw.Connection) -> None:
    for statement in NOW:
        connection.execute(statement)


def set_old_aside(connection: apsw.Connection) -> None:
    """Under another name, with the new tables empty beside them; the caller moves the runs over."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    indexes = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    for name in [name for (name,) in connection.execute(indexes)]:
        connection.execute(f'DROP INDEX "{name}"')
    for name in tables & {"runs", "bodies"}:
        connection.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    if "account" in tables:
        connection.execute("DROP TABLE account")
    create(connection)


def is_ours(connection: apsw.Connection) -> bool:
    """Whether the file has our tables and indexes and nothing else, to the letter."""
    found = {text for (text,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    return found == set(NOW)
