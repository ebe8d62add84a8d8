"""The tables of the index, and how an older index becomes a newer one. An append-only list: never edit a step."""

from __future__ import annotations

from collections.abc import Callable

import apsw

VERSION = 2

_FIRST = (
    """CREATE TABLE runs (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, key TEXT NOT NULL UNIQUE, project TEXT NOT NULL,
    created REAL NOT NULL, status TEXT NOT NULL, final INTEGER NOT NULL, hidden INTEGER NOT NULL,
    spec TEXT NOT NULL, state TEXT NOT NULL, reading TEXT NOT NULL, submitter TEXT NOT NULL
) WITHOUT ROWID""",
    "CREATE INDEX runs_by_project ON runs (project, created)",
    "CREATE INDEX runs_by_time ON runs (created)",
    "CREATE INDEX runs_unfinished ON runs (final) WHERE final = 0",
)

# What a list looks at is narrow, and apart from what only the runs that are shown need. Every row has a checksum of
# its content; the one row of ``account`` says how many rows there must be, and what their checksums add up to.
NOW = (
    """CREATE TABLE runs (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL UNIQUE, number INTEGER NOT NULL,
    project TEXT NOT NULL, created INTEGER NOT NULL, status TEXT NOT NULL, final INTEGER NOT NULL,
    hidden INTEGER NOT NULL, script TEXT NOT NULL, target TEXT NOT NULL, facts TEXT NOT NULL, metrics TEXT NOT NULL,
    checksum INTEGER NOT NULL
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
)

Step = Callable[[apsw.Connection], None]


def create(connection: apsw.Connection) -> None:
    for statement in NOW:
        connection.execute(statement)


def set_old_aside(connection: apsw.Connection) -> None:
    """Version 1 → 2: the old rows under another name, the new tables empty; the caller moves the runs over."""
    for name in ("runs_by_project", "runs_by_time", "runs_unfinished"):
        connection.execute(f"DROP INDEX {name}")
    connection.execute("ALTER TABLE runs RENAME TO runs_of_1")
    create(connection)


def is_ours(connection: apsw.Connection) -> bool:
    """Whether the file has our tables and indexes and nothing else, to the letter."""
    found = {text for (text,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    return found == set(NOW)
