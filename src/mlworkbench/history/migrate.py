"""The runs of an older index into the tables of today, with all that only this side knows of them."""

from __future__ import annotations

import json
from contextlib import suppress

import apsw

from . import rows
from .database import Damaged
from .rows import Reading

_BODY = "spec, state, reading, submitter"


def migrate(connection: apsw.Connection) -> None:
    """From what ``schema.set_old_aside`` has set aside: version 1 had one table, version 2 had two."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    apart = "JOIN old_bodies USING (seq) " if "old_bodies" in tables else ""
    for row in connection.execute(f"SELECT {_BODY} FROM old_runs {apart}ORDER BY created, number"):
        spec, state, reading, submitter = row
        try:
            run, read, who = rows.decode(spec, state), Reading(**json.loads(reading)), json.loads(submitter)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise Damaged("a run of an older version") from error
        with suppress(rows.RowTooLarge):
            rows.pour(connection, rows.encode(run, read, who))
    for name in tables & {"old_runs", "old_bodies"}:
        connection.execute(f"DROP TABLE {name}")
    rows.start_account(connection)
