"""Build the index from the run folders, or repair a live index while other processes write to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import apsw

from ..model import Run
from ..remote.shared import run_endings
from ..remote.shared.failpoint import failpoint
from ..remote.shared.layout import Root
from . import rows
from .database import Damaged, Database
from .parallel_read import Batch, read_in_batches
from .run_folders import list_run_folders, read_run_folder
from .value_index import ValueWriter, verify_all

Progress = Callable[[int, int], None]


def fill_index(connection: apsw.Connection, root: Root, progress: Progress) -> None:
    """Insert all runs into empty tables that other processes cannot access yet."""
    names, values = list_run_folders(root), ValueWriter(connection)
    for done, batch in read_in_batches(root, names):
        for _, encoded in batch:
            with suppress(rows.RowTooLarge):
                rows.bulk_insert(connection, encoded, values)
        progress(done, len(names))
    values.flush()
    rows.recount_account(connection)


def repair_index(database: Database, root: Root, progress: Progress) -> int:
    """Repair a live index and return its number of runs.

    Folders are compared with rows without a write lock. Only rows that differ are written, a few at a
    time, from the current contents of the folder, so that a run that continues in the meantime never
    regresses. If the process is killed, some rows are repaired and the others are unchanged. A run that
    was added in the meantime is already correct.
    """
    database.read(_check)
    names = list_run_folders(root)
    for done, batch in read_in_batches(root, names):
        _repair_batch(database, root, batch)
        progress(done, len(names))
    _drop_missing(database, root, set(names))
    return database.read(lambda connection: int(next(iter(connection.execute("SELECT count(*) FROM runs")))[0]))


def _check(connection: apsw.Connection) -> None:
    """Verify everything, including page trees and indexes, which are otherwise checked only in small files."""
    if next(iter(connection.execute("PRAGMA integrity_check(1)")))[0] != "ok":
        raise Damaged("check of the whole file")
    rows.verify(connection)
    verify_all(connection)


def _repair_batch(database: Database, root: Root, batch: Batch) -> None:
    outdated = database.read(
        lambda connection: list(
            dict.fromkeys(name for name, encoded in batch if not rows.is_up_to_date(connection, encoded))
        )
    )
    if outdated:
        # One batch per transaction, so that other processes wait only milliseconds.
        database.write(lambda connection: _rewrite_rows(connection, root, outdated))
        failpoint("renewed")


def _rewrite_rows(connection: apsw.Connection, root: Root, names: list[str]) -> None:
    for name in names:  # read again under the write lock
        for run, reading in read_run_folder(root, name):  # empty if the folder no longer exists
            put_run(connection, run, reading)


def put_run(connection: apsw.Connection, run: Run, reading: rows.ReadPosition) -> None:
    """Write the row of a run as read from its folder. A run that is too large for a row is skipped."""
    with suppress(rows.RowTooLarge):
        _put_row(connection, run, reading)


def _put_row(connection: apsw.Connection, run: Run, reading: rows.ReadPosition) -> None:
    stored = rows.select(connection, "id = ?", (run.id,))
    if not stored:
        rows.insert(connection, run, reading, {})
    for old in stored:
        fresh = _keep_client_facts(old.run, run), reading
        if fresh != (old.run, old.reading):
            rows.update(connection, old, *fresh, old.submitter)


def _keep_client_facts(old: Run, fresh: Run) -> Run:
    """Keep facts that the folder does not contain: contact, the scheduler's last report, or a run marked as lost."""
    if fresh.status.final:
        return fresh
    if old.ending == run_endings.TARGET_LOST:
        return old
    return replace(fresh, contact=old.contact, no_contact=old.no_contact, job=old.job)


def _drop_missing(database: Database, root: Root, names: set[str]) -> None:
    """Delete runs whose folder no longer exists.

    A run that has not been accepted yet is kept, because it may not have a folder.
    """

    def find_missing(connection: apsw.Connection) -> Iterator[rows.Stored]:
        ids = [run_id for (run_id,) in connection.execute("SELECT id FROM runs NOT INDEXED") if run_id not in names]
        for run_id in ids:
            for one in rows.select(connection, "id = ?", (run_id,)):
                if one.run.accepted is not None and not os.path.lexists(root.run(one.run.spec.folder).path):
                    yield one

    def delete(connection: apsw.Connection) -> None:
        for row in list(find_missing(connection)):
            rows.delete(connection, row)

    if database.read(lambda connection: any(True for _ in find_missing(connection))):
        database.write(delete)
