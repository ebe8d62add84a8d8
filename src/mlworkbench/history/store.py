"""The history: plain run folders are the truth, the index makes them quick to find."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import apsw

from ..errors import HistoryError, MlwError, UnknownName
from ..model import JsonDict, Run, RunSpec
from ..paths import UserPaths
from ..remote import machine
from ..remote.failpoint import failpoint
from ..remote.journal import read_json, write_whole
from ..remote.tree import remove
from . import rows
from .database import Damaged, Database
from .intake import take_in
from .query import Query, find
from .renew import Progress, fill, renew
from .rows import Reading

Runs = list[Run]


class IdTaken(Exception):
    """A run with this id exists; think of another."""


class Ambiguous(UnknownName):
    """A beginning that several runs share."""

    def __init__(self, message: str, hint: str) -> None:
        MlwError.__init__(self, message, hint)


class History:
    """The runs of this user. ``progress`` hears how many of all folders are read, where the index is made anew."""

    def __init__(self, paths: UserPaths, progress: Progress = lambda done, total: None) -> None:
        self.paths = paths
        self._progress = progress
        self._database = Database(paths.database, self._refill, _migrate)

    # -- writing -----------------------------------------------------------------------------------

    def add(self, spec: RunSpec) -> tuple[RunSpec, bool]:
        """Record a run before anything leaves this machine. The same key is the same run: tells if it is new."""

        def insert(connection: apsw.Connection) -> tuple[RunSpec, bool]:
            for known in rows.select(connection, "key = ?", (rows.clean(spec.key),)):
                return known.run.spec, False
            if rows.select(connection, "id = ?", (spec.id,)):
                raise IdTaken(spec.id)
            taken = connection.execute("SELECT max(number) FROM runs WHERE project = ?", (spec.project_id,))
            numbered = replace(spec, number=(next(iter(taken))[0] or 0) + 1)
            rows.insert(connection, Run(numbered), Reading(), _submitter())
            return numbered, True

        if os.path.exists(self.paths.root.run(spec.id).path):
            raise IdTaken(spec.id)
        stored, new = self._database.write(insert)
        failpoint("recorded")
        self.make_folder(stored)
        failpoint("foldered")
        return stored, new

    def make_folder(self, spec: RunSpec) -> None:
        """The run's folder with its spec; there already if an earlier attempt got that far."""
        folder = self.paths.root.run(spec.id)
        try:
            os.makedirs(folder.path, mode=0o700, exist_ok=True)
            if read_json(folder.spec) is None:
                write_whole(folder.spec, spec.to_json())
        except OSError as error:
            raise HistoryError(f"cannot write {folder.path}: {error.strerror}") from error

    def append(self, run_id: str, since: Reading, parts: Mapping[str, bytes]) -> tuple[Run, Reading]:
        """Take in new bytes of the run's files, read from ``since``. Appending twice is harmless."""

        def change(run: Run, reading: Reading) -> tuple[Run, Reading]:
            # Another process may have been quicker with some of the files: those are left to its next look.
            new = {name: data for name, data in parts.items() if _at(reading, name) == _at(since, name)}
            return take_in(run, reading, new)

        return self._change(run_id, change)

    def note(self, run_id: str, change: Callable[[Run], Run]) -> Run:
        """Record what only this side knows: contact, interruption, a run that its target lost."""
        return self._change(run_id, lambda run, reading: (change(run), reading))[0]

    def take_over(self, run_id: str) -> Run:
        """From now on this process answers for the submit."""

        def update(connection: apsw.Connection) -> None:
            for old in rows.select(connection, "id = ?", (run_id,)):
                rows.update(connection, old, old.run, old.reading, _submitter())

        self._database.write(update)
        return self.note(run_id, lambda run: run if run.status.final else replace(run, detail=None))

    def remove(self, run_id: str) -> None:
        """Forget a run and delete its folder."""

        folder = self.paths.root.run(run_id)

        def delete(connection: apsw.Connection) -> None:
            for old in rows.select(connection, "id = ?", (run_id,)):
                rows.delete(connection, old)
                # While nobody else can write: a rebuild must not find the run again in what is left of its folder.
                with suppress(OSError):
                    os.unlink(folder.spec)

        self._database.write(delete)
        remove(folder.path)

    def _change(self, run_id: str, change: Callable[[Run, Reading], tuple[Run, Reading]]) -> tuple[Run, Reading]:
        def update(connection: apsw.Connection) -> tuple[Run, Reading]:
            old = _one(connection, run_id)
            run, reading = change(old.run, old.reading)
            if (run, reading) != (old.run, old.reading):
                rows.update(connection, old, run, reading, old.submitter)
            return run, reading

        return self._database.write(update)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, prefix: str) -> Run:
        """The run with this id, or the only one whose id begins so, or the only one whose id has it in it."""
        found = self._database.read(lambda connection: self._look_up(connection, prefix))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(run.id for run in found[:5]) + (", …" if len(found) > 5 else "")
            raise Ambiguous(f"{prefix!r} could be any of {names}", "give more of the id")
        recent = [run.id for run in self.search(Query(hidden=True, limit=5))]
        raise UnknownName("run", prefix, recent, "list them with: mlw history list")

    def _look_up(self, connection: apsw.Connection, prefix: str) -> Runs:
        """The run of this id, else up to six that begin so, else up to six that have it in them."""
        prefix = rows.clean(prefix)
        newest = " ORDER BY created DESC LIMIT 6"
        found = rows.select(connection, "id = ?", (prefix,))
        if not found and prefix:
            found = rows.select(connection, "id >= ? AND id < ?" + newest, (prefix, prefix + "\U0010ffff"))
        if not found and prefix:
            self._database.check(connection, rows.verify)  # before it is said that there is no such run
            found = rows.select(connection, "instr(id, ?)" + newest, (prefix,), "NOT INDEXED")
        return [one.run for one in found]

    def by_key(self, key: str) -> Run | None:
        found = self._database.read(lambda connection: rows.select(connection, "key = ?", (rows.clean(key),)))
        return found[0].run if found else None

    def list(self, project_id: str | None = None, hidden: bool = False, limit: int | None = None) -> Runs:
        """Newest first."""
        return self.search(Query(project=project_id, hidden=hidden, limit=limit))

    def search(self, query: Query) -> Runs:
        """The runs that fit, in the order that was asked for."""

        def search(connection: apsw.Connection) -> Runs:
            self._database.check(connection, rows.verify)
            return rows.fetch(connection, find(connection, query))

        return self._database.read(search)

    def unfinished(self, project_id: str | None = None) -> Runs:
        def unfinished(connection: apsw.Connection) -> Runs:
            rows.expect_unfinished(connection)
            where, values = ("AND project = ?", (project_id,)) if project_id else ("", ())
            return [one.run for one in rows.select(connection, f"final = 0 {where} ORDER BY created DESC", values)]

        return self._database.read(unfinished)

    def known(self, run_id: str) -> tuple[Run, Reading]:
        """A run and how far its files were read for that, in one look: taken one after the other, an event that
        another process reads in between would be missed for ever."""
        stored = self._database.read(lambda connection: _one(connection, run_id))
        return stored.run, stored.reading

    def submitter_lives(self, run_id: str) -> bool:
        """Whether the process that submitted the run is still there."""
        for one in self._database.read(lambda connection: rows.select(connection, "id = ?", (run_id,))):
            who, here = one.submitter, machine.identity()
            same = all(who.get(name) == value for name, value in here.items())
            return same and machine.start_time(who["pid"]) == who["start"]
        return False

    # -- the index from the folders ----------------------------------------------------------------

    def rebuild(self) -> int:
        """Put the index right from the run folders; tells how many runs it holds. Others can write meanwhile."""
        if not self.paths.database.exists():  # opening it makes it from the folders
            return len(self._database.read(lambda connection: list(connection.execute("SELECT 1 FROM runs"))))
        return renew(self._database, self.paths.root, self._progress)

    def _refill(self, connection: apsw.Connection) -> None:
        fill(connection, self.paths.root, self._progress)

    def close(self) -> None:
        self._database.close()


def _one(connection: apsw.Connection, run_id: str) -> rows.Stored:
    for found in rows.select(connection, "id = ?", (run_id,)):
        return found
    rows.verify(connection)
    raise HistoryError(f"run {run_id} has been removed")


def _migrate(connection: apsw.Connection) -> None:
    """The runs of version 1 into the tables of today, with all that only this side knows of them."""
    old = connection.execute("SELECT spec, state, reading, submitter FROM runs_of_1 ORDER BY created, number")
    for spec, state, reading, submitter in old:
        try:
            run, read, who = rows.decode(spec, state), Reading(**json.loads(reading)), json.loads(submitter)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise Damaged("a run of version 1") from error
        rows.pour(connection, rows.encode(run, read, who))
    connection.execute("DROP TABLE runs_of_1")
    rows.start_account(connection)


def _submitter() -> JsonDict:
    return dict(machine.identity(), pid=os.getpid(), start=machine.start_time(os.getpid()))


def _at(reading: Reading, name: str) -> int:
    return reading.offsets.get(name, 0)
