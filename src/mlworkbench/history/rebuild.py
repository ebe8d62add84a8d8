"""The index from the run folders: a new one, or a live one put right while others go on writing to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import apsw

from ..model import IN_CONTACT, Run
from ..remote.shared import endings
from ..remote.shared.failpoint import failpoint
from ..remote.shared.layout import Root
from . import rows
from .database import Damaged, Database
from .folders import read_family, run_names
from .gather import Batch, gather

Progress = Callable[[int, int], None]


def fill(connection: apsw.Connection, root: Root, progress: Progress) -> None:
    """All runs into empty tables that nobody else sees yet."""
    names = run_names(root)
    for done, batch in gather(root, names):
        for _, one in batch:
            with suppress(rows.RowTooLarge):
                rows.pour(connection, one)
        progress(done, len(names))
    rows.start_account(connection)


def renew(database: Database, root: Root, progress: Progress) -> int:
    """Put a live index right; tells how many runs it holds then.

    Folders are read and compared with the rows while nobody has to wait. Only rows that differ are written, a few
    at a time, from what the folder holds at that moment: so a run that goes on meanwhile never falls back. A kill
    leaves some rows put right and the others as they were. A run that was added meanwhile is right already.
    """
    database.read(_check)
    names = run_names(root)
    for done, batch in gather(root, names):
        _renew_some(database, root, batch)
        progress(done, len(names))
    _drop(database, root, set(names))
    return database.read(lambda connection: int(next(iter(connection.execute("SELECT count(*) FROM runs")))[0]))


def _check(connection: apsw.Connection) -> None:
    """Also what is otherwise checked only in small files: the trees of pages, the indexes."""
    if next(iter(connection.execute("PRAGMA integrity_check(1)")))[0] != "ok":
        raise Damaged("check of the whole file")
    rows.verify(connection)


def _renew_some(database: Database, root: Root, batch: Batch) -> None:
    wrong = database.read(
        lambda connection: list(dict.fromkeys(name for name, one in batch if not rows.holds(connection, one)))
    )
    if wrong:
        # As many as a batch has: others wait for milliseconds.
        database.write(lambda connection: _put_right(connection, root, wrong))
        failpoint("renewed")


def _put_right(connection: apsw.Connection, root: Root, names: list[str]) -> None:
    for name in names:  # read again, now that nobody else can write what they have read
        for run, reading in read_family(root, name):  # none: removed meanwhile
            put(connection, run, reading)


def put(connection: apsw.Connection, run: Run, reading: rows.Reading) -> None:
    """The row of a run, from what its folder tells. One that is too large for a row costs no other run."""
    with suppress(rows.RowTooLarge):
        _put(connection, run, reading)


def _put(connection: apsw.Connection, run: Run, reading: rows.Reading) -> None:
    known = rows.select(connection, "id = ?", (run.id,))
    if not known:
        rows.insert(connection, run, reading, {})
    for old in known:
        fresh = _with_notes(old.run, run), reading
        if fresh != (old.run, old.reading):
            rows.update(connection, old, *fresh, old.submitter)


def _with_notes(old: Run, fresh: Run) -> Run:
    """With what no folder tells: that there is no contact, or that the run was given up."""
    if fresh.status.final:
        return fresh
    if old.ending == endings.TARGET_LOST:
        return old
    return replace(fresh, contact=old.contact, no_contact=old.no_contact) if old.contact != IN_CONTACT else fresh


def _drop(database: Database, root: Root, names: set[str]) -> None:
    """Runs whose folder is gone. One that nobody has accepted yet may not have got its folder: it stays."""

    def gone(connection: apsw.Connection) -> Iterator[rows.Stored]:
        ids = [run_id for (run_id,) in connection.execute("SELECT id FROM runs NOT INDEXED") if run_id not in names]
        for run_id in ids:
            for one in rows.select(connection, "id = ?", (run_id,)):
                if one.run.accepted is not None and not os.path.lexists(root.run(one.run.spec.folder).path):
                    yield one

    def delete(connection: apsw.Connection) -> None:
        for one in list(gone(connection)):
            rows.delete(connection, one)

    if database.read(lambda connection: any(True for _ in gone(connection))):
        database.write(delete)
