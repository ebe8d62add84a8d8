"""Run history: run folders are the source of truth, and the index makes them searchable."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import apsw

from ..client_identity import client_of
from ..errors import HistoryError, MlwError, UnknownName
from ..model import Annotations, JsonDict, Run, RunSpec
from ..paths import UserPaths, user_paths
from ..remote.shared import machine, run_endings
from ..remote.shared.failpoint import failpoint
from ..remote.shared.folder_tree import remove
from ..remote.shared.layout import is_untracked
from . import rows
from .annotations import write_annotations
from .database import Database, Result
from .ingest import ingest_bytes
from .migrate import migrate
from .nested_runs import child_id, children_of
from .query_sql import Check
from .rebuild import Progress, fill_index, put_run, repair_index
from .rows import ReadPosition
from .run_folders import make_folder, read_run_folder
from .run_query import Query
from .run_search import find_runs
from .sqlite_values import sqlite_text
from .untracked_runs import FACTS, has_end_record, untracked_names

Runs = list[Run]
NewBytes = tuple[str, ReadPosition, Mapping[str, bytes]]  # run ID, position where reading began, and new bytes by file
Change = Callable[[Run, ReadPosition], tuple[Run, ReadPosition]]

_END_UNKNOWN = 2  # the run seems to have ended, but no result was recorded
_NAME_COLUMN = "json_extract(facts, '$.name')"
_SELECT_UNTRACKED = (
    f"SELECT id, CASE WHEN final AND json_extract(facts, '$.ending') = '{run_endings.EXIT_UNKNOWN}' THEN {_END_UNKNOWN}"
    " ELSE final END FROM runs WHERE id >= 'local-' AND id < 'local.'"
)


class IdTaken(Exception):
    """Error for a run ID that already exists."""


class RunRemoved(HistoryError):
    """Error for a run that another command has removed."""


class AmbiguousName(UnknownName):
    """Error for an ID prefix or name that matches several runs."""

    def __init__(self, message: str, hint: str) -> None:
        MlwError.__init__(self, message, hint)


class History:
    """History of this user's runs.

    While the index is rebuilt, ``progress`` is called with the number of folders read.
    """

    def __init__(self, paths: UserPaths | None = None, progress: Progress = lambda done, total: None) -> None:
        self.paths = paths or user_paths()
        self._progress = progress
        self._database = Database(self.paths.database, self._refill, self._migrate)

    # -- writing -----------------------------------------------------------------------------------

    def add(self, spec: RunSpec, children: Sequence[RunSpec] = ()) -> tuple[RunSpec, bool]:
        """Record a run before any data leaves this machine.

        Return the stored spec, and whether it is new: False if a run with the same key exists. ``children``
        are the runs of a sweep, recorded in the same transaction.
        """

        client = spec.client if spec.origin else client_of(self.paths).id or None

        def insert(connection: apsw.Connection) -> tuple[list[RunSpec], bool]:
            for row in rows.select(connection, "key = ?", (sqlite_text(spec.key),)):
                return [row.run.spec], False
            for run_spec in (spec, *children):
                if rows.select(connection, "id = ?", (run_spec.id,)):
                    raise IdTaken(run_spec.id)
            highest = connection.execute("SELECT max(number) FROM runs WHERE project = ?", (spec.project_id,))
            first = (next(iter(highest))[0] or 0) + 1
            numbered = [
                replace(run_spec, number=number, client=client)
                for number, run_spec in enumerate((spec, *children), first)
            ]
            for run_spec in numbered:
                rows.insert(connection, Run(run_spec), ReadPosition(), _submitter())
            return numbered, True

        ids: set[str] = set()
        for run_spec in (spec, *children):  # with thousands of IDs, two may collide
            if run_spec.id in ids or os.path.exists(self.paths.root.run(run_spec.id).path):
                raise IdTaken(run_spec.id)
            ids.add(run_spec.id)
        stored, is_new = self._database.write(insert)
        failpoint("recorded")
        for run_spec in stored:
            make_folder(self.paths.root, run_spec)
        failpoint("foldered")
        return stored[0], is_new

    def append(self, run_id: str, since: ReadPosition, parts: Mapping[str, bytes]) -> tuple[Run, ReadPosition]:
        """Ingest new bytes of the run's files, read from ``since``. Appending them twice is harmless."""

        return append_all(self, [(run_id, since, parts)])[run_id]

    def update(self, run_id: str, change: Callable[[Run], Run]) -> Run:
        """Record client-side facts, for example that contact was lost or that a run was interrupted or lost."""
        changed = self._database.write(
            lambda connection: _update(connection, run_id, lambda run, reading: (change(run), reading))
        )
        return changed[0]

    def annotate(self, run_id: str, change: Callable[[Annotations], Annotations]) -> Run:
        """Record a user's name, tags, or note for a run, in the index and in the run folder."""

        def apply_change(run: Run) -> Run:
            changed = replace(run, noted=change(run.noted))
            write_annotations(self.paths.root, run.spec, changed.noted)  # while holding the write lock
            return changed

        return self.update(run_id, apply_change)

    def take_over(self, run_id: str) -> Run:
        """Make this process responsible for submitting the run."""

        def update(connection: apsw.Connection) -> None:
            for old in rows.select(connection, "id = ?", (run_id,)):
                rows.update(connection, old, old.run, old.reading, _submitter())

        self._database.write(update)
        return self.update(run_id, lambda run: run if run.status.final else replace(run, detail=None))

    def remove(self, run_id: str) -> None:
        """Remove a run from the index and delete its folder."""

        folder = self.paths.root.run(run_id)

        def delete(connection: apsw.Connection) -> None:
            for old in rows.select(connection, "id = ? OR (parent != '' AND id >= ? AND id < ?)", _id_bounds(run_id)):
                rows.delete(connection, old)
            # Delete the spec under the write lock: a rebuild must not find the run in a partly deleted folder.
            for path in (folder.spec, os.path.join(folder.path, FACTS)):
                with suppress(OSError):
                    os.unlink(path)

        self._database.write(delete)
        remove(folder.path)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, prefix: str) -> Run:
        """Return the run with this ID or name, or whose ID is the only one that contains ``prefix``."""
        self._ingest_untracked()
        matches = self._database.read(lambda connection: self._find_matches(connection, prefix))
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(run.id for run in matches[:5]) + (", …" if len(matches) > 5 else "")
            raise AmbiguousName(f"{prefix!r} matches several runs: {names}", "use more characters of the ID")
        recent = [run.id for run in self.search(Query(hidden=True, limit=5))]
        raise UnknownName("run", prefix, recent, "list runs with 'mlw history list'")

    def _find_matches(self, connection: apsw.Connection, prefix: str) -> Runs:
        """Return the run with this ID, or up to six runs with a similar ID or this name.

        IDs that start with ``prefix`` take precedence over IDs that contain it; names come last.
        """
        prefix = sqlite_text(prefix)
        newest = " ORDER BY created DESC LIMIT 6"
        matches = rows.select(connection, "id = ?", (prefix,))
        top_level = "" if "." in prefix else " AND instr(id, '.') = 0"  # without a dot, prefer runs to nested runs
        if not matches and prefix:
            matches = rows.select(connection, f"id >= ? AND id < ?{top_level}{newest}", (prefix, prefix + "\U0010ffff"))
        if not matches and prefix:
            self._database.check(connection, "runs", rows.verify)  # before reporting that there is no such run
        for scope in (top_level, "") if prefix else ():
            matches = matches or rows.select(connection, f"instr(id, ?){scope}{newest}", (prefix,), "NOT INDEXED")
        if not matches and prefix:
            matches = rows.select(connection, f"{_NAME_COLUMN} = ?{newest}", (prefix,), "NOT INDEXED")
        return [row.run for row in matches]

    def by_key(self, key: str) -> Run | None:
        matches = self._database.read(lambda connection: rows.select(connection, "key = ?", (sqlite_text(key),)))
        return matches[0].run if matches else None

    def search(self, query: Query) -> Runs:
        """Return the matching runs in the order that the query specifies."""
        return query_index(self, lambda connection, check: rows.fetch(connection, find_runs(connection, query, check)))

    def read(self, body: Callable[[apsw.Connection], Result]) -> Result:
        """Run ``body`` in a read transaction. It verifies the few rows that it reads."""
        return self._database.read(body)

    def unfinished(self, project_id: str | None = None) -> Runs:
        def select(connection: apsw.Connection) -> Runs:
            rows.expect_unfinished(connection)
            where, values = ("AND project = ?", (project_id,)) if project_id else ("", ())
            matches = rows.select(connection, f"final = 0 {where} ORDER BY created DESC", values)
            # Nested runs are updated with their parent, and untracked runs by every search.
            return [row.run for row in matches if not row.run.spec.inside and not is_untracked(row.run.id)]

        return self._database.read(select)

    def load(self, run_id: str) -> tuple[Run, ReadPosition]:
        """Return a run and its read position, both read in one transaction.

        With two separate reads, an event that another process ingests in between would be missed forever.
        """
        stored = self._database.read(lambda connection: _require_row(connection, run_id))
        return stored.run, stored.reading

    def is_submitter_alive(self, run_id: str) -> bool:
        """Return whether the process that submitted the run still exists."""
        for row in self._database.read(lambda connection: rows.select(connection, "id = ?", (run_id,))):
            submitter, identity = row.submitter, machine.identity()
            same_machine = all(submitter.get(name) == value for name, value in identity.items())
            return same_machine and machine.start_time(submitter["pid"]) == submitter["start"]
        return False

    def _ingest_untracked(self) -> None:
        """Ingest runs that scripts recorded without a submission, and update unfinished ones."""
        root = self.paths.root
        names = untracked_names(root)
        if not names:
            return
        states = self._database.read(lambda connection: dict(connection.execute(_SELECT_UNTRACKED)))
        # A script on another machine with the same home folder seems dead here until it records its end.
        pending = [
            name
            for name in names
            if not states.get(name) or (states[name] == _END_UNKNOWN and has_end_record(root, name))
        ]

        def ingest(connection: apsw.Connection) -> None:
            for name in pending:
                before = [(row.run, row.reading) for row in rows.select(connection, "id = ?", (name,))]
                for run, reading in read_run_folder(root, name, *before):
                    put_run(connection, run, reading)

        if pending:
            self._database.write(ingest)

    # -- rebuilding the index ----------------------------------------------------------------------

    def rebuild(self) -> int:
        """Repair the index from the run folders and return the number of runs.

        Other processes can write in the meantime.
        """
        if not self.paths.database.exists():  # opening a missing index builds it from the run folders
            return len(self._database.read(lambda connection: list(connection.execute("SELECT 1 FROM runs"))))
        return repair_index(self._database, self.paths.root, self._progress)

    def _refill(self, connection: apsw.Connection) -> None:
        fill_index(connection, self.paths.root, self._progress)

    def _migrate(self, connection: apsw.Connection) -> None:
        migrate(connection, self._progress)

    def close(self) -> None:
        self._database.close()


def query_index(history: History, body: Callable[[apsw.Connection, Check], Result]) -> Result:
    """Run ``body`` in a read transaction after all runs are verified. It verifies the values that it reads."""
    history._ingest_untracked()

    def read_verified(connection: apsw.Connection) -> Result:
        check = partial(history._database.check, connection)
        check("runs", rows.verify)
        return body(connection, check)

    return history._database.read(read_verified)


def append_all(history: History, updates: Sequence[NewBytes]) -> dict[str, tuple[Run, ReadPosition]]:
    """Append to many runs in a single transaction, because each transaction waits for the disk."""

    def append(connection: apsw.Connection) -> dict[str, tuple[Run, ReadPosition]]:
        return {run_id: _update(connection, run_id, _append_change(since, parts)) for run_id, since, parts in updates}

    return history._database.write(append)


def release(history: History, run_id: str) -> None:
    """End this process's responsibility for a submission.

    A run that was not started then counts as interrupted.
    """

    def update(connection: apsw.Connection) -> None:
        for old in rows.select(connection, "id = ?", (run_id,)):
            if old.submitter == _submitter():
                rows.update(connection, old, old.run, old.reading, {})

    history._database.write(update)


def _update(connection: apsw.Connection, run_id: str, change: Change) -> tuple[Run, ReadPosition]:
    old = _require_row(connection, run_id)
    run, reading = change(old.run, old.reading)
    if (run, reading) != (old.run, old.reading):
        rows.update(connection, old, run, reading, old.submitter)
        _write_children(connection, old.run, run)
    return run, reading


def _append_change(since: ReadPosition, parts: Mapping[str, bytes]) -> Change:
    """Return a change that ingests the new bytes in ``parts``, read from position ``since``."""

    def change(run: Run, reading: ReadPosition) -> tuple[Run, ReadPosition]:
        # Skip files that another process has already ingested.
        new = {name: data for name, data in parts.items() if _offset(reading, name) == _offset(since, name)}
        return ingest_bytes(run, reading, new)

    return change


def _require_row(connection: apsw.Connection, run_id: str) -> rows.Stored:
    for row in rows.select(connection, "id = ?", (run_id,)):
        return row
    rows.verify(connection)
    raise RunRemoved(f"run {run_id} was removed")


def _write_children(connection: apsw.Connection, old_run: Run, run: Run) -> None:
    """Write the nested runs that changed, preserving users' annotations."""
    is_ending = run.status.final != old_run.status.final
    changed = {
        child_id(run.id, name)
        for name, data in run.children.items()
        if is_ending or data.get("same") or data != old_run.children.get(name)  # "same": it has the data of the run
    }
    for child in children_of(run) if changed else ():
        if child.id not in changed:
            continue
        stored = rows.select(connection, "id = ?", (child.id,))
        if not stored:
            rows.insert(connection, child, ReadPosition(), {})
        for old in stored:
            rows.update(connection, old, replace(child, noted=old.run.noted), ReadPosition(), {})


def _id_bounds(run_id: str) -> tuple[str, str, str]:
    """Return the run ID, and the lower and upper bound of its nested runs' IDs."""
    return run_id, f"{run_id}.", f"{run_id}/"


def _submitter() -> JsonDict:
    return dict(machine.identity(), pid=os.getpid(), start=machine.start_time(os.getpid()))


def _offset(reading: ReadPosition, name: str) -> int:
    return reading.offsets.get(name, 0)
