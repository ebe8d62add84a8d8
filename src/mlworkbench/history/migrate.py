"""Migrate an older index to the current tables, including facts that are stored only on the client."""

from __future__ import annotations

import json
from contextlib import suppress

import apsw

from . import rows
from .database import Damaged
from .rebuild import Progress
from .rows import ReadPosition
from .value_index import ValueWriter

_BATCH = 200
_BODY = "spec, state, reading, submitter"


def migrate(connection: apsw.Connection, progress: Progress) -> None:
    """Copy the runs from the tables that ``index_schema.rename_old_tables`` renamed.

    Version 1 had one table, and later versions have two.
    """
    values = ValueWriter(connection)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    join = "JOIN old_bodies USING (seq) " if "old_bodies" in tables else ""
    total = next(iter(connection.execute("SELECT count(*) FROM old_runs")))[0]
    for done, row in enumerate(connection.execute(f"SELECT {_BODY} FROM old_runs {join}ORDER BY created, number"), 1):
        spec, state, reading, submitter = row
        try:
            run, position, submitter_data = (
                rows.decode(spec, state),
                ReadPosition(**json.loads(reading)),
                json.loads(submitter),
            )
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise Damaged("a run of an older version") from error
        with suppress(rows.RowTooLarge):
            rows.bulk_insert(connection, rows.encode(run, position, submitter_data), values)
        if done % _BATCH == 0 or done == total:
            progress(done, total)
    values.flush()
    for name in tables & {"old_runs", "old_bodies"}:
        connection.execute(f"DROP TABLE {name}")
    rows.recount_account(connection)
