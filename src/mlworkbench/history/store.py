"""The history: plain run folders are the truth, the index makes them quick to find."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import apsw

from ..client_identity import client_of
from ..errors import HistoryError, MlwError, UnknownName
from ..model import JsonDict, Noted, Run, RunSpec
from ..paths import UserPaths, user_paths
from ..remote.shared import endings, machine
from ..remote.shared.failpoint import failpoint
from ..remote.shared.layout import is_outside
from ..remote.shared.tree import remove
from . import rows
from .annotations import write_noted
from .database import Answer, Database
from .family import child_id, children_of
from .folders import make_folder, read_family
from .intake import take_in
from .migrate import migrate
from .outside import FACTS, outside_names, told_end
from .query import Query, find
from .renew import Progress, fill, put, renew
from .rows import Reading

Runs = list[Run]
News = tuple[str, Reading, Mapping[str, bytes]]  # of a run: its ID, from where it was read, and the bytes
Change = Callable[[Run, Reading], tuple[Run, Reading]]

_UNKNOWN = 2  # it seems to have ended, and did not say how
_NAME = "json_extract(facts, '$.name')"
_OUTSIDE = (
    f"SELECT id, CASE WHEN final AND json_extract(facts, '$.ending') = '{endings.EXIT_UNKNOWN}' THEN {_UNKNOWN}"
    " ELSE final END FROM runs WHERE id >= 'local-' AND id < 'local.'"
)


class IdTaken(Exception):
    """A run with this id exists; think of another."""


class RunRemoved(HistoryError):
    """Another command has removed the run."""


class Ambiguous(UnknownName):
    """A beginning that several runs share."""

    def __init__(self, message: str, hint: str) -> None:
        MlwError.__init__(self, message, hint)


class History:
    """The runs of this user. ``progress`` hears how many of all folders are read, where the index is made anew."""

    def __init__(self, paths: UserPaths | None = None, progress: Progress = lambda done, total: None) -> None:
        self.paths = paths or user_paths()
        self._progress = progress
        self._database = Database(self.paths.database, self._refill, migrate)

    # -- writing -----------------------------------------------------------------------------------

    def add(self, spec: RunSpec, children: Sequence[RunSpec] = ()) -> tuple[RunSpec, bool]:
        """Record a run before anything leaves this machine. The same key is the same run: tells if it is new.

        ``children``: the runs of a sweep, which are recorded with it or not at all.
        """

        who = spec.client if spec.origin else client_of(self.paths).id or None

        def insert(connection: apsw.Connection) -> tuple[list[RunSpec], bool]:
            for known in rows.select(connection, "key = ?", (rows.clean(spec.key),)):
                return [known.run.spec], False
            for one in (spec, *children):
                if rows.select(connection, "id = ?", (one.id,)):
                    raise IdTaken(one.id)
            taken = connection.execute("SELECT max(number) FROM runs WHERE project = ?", (spec.project_id,))
            first = (next(iter(taken))[0] or 0) + 1
            numbered = [replace(one, number=number, client=who) for number, one in enumerate((spec, *children), first)]
            for one in numbered:
                rows.insert(connection, Run(one), Reading(), _submitter())
            return numbered, True

        taken: set[str] = set()
        for one in (spec, *children):  # thousands of ids may have two that are the same
            if one.id in taken or os.path.exists(self.paths.root.run(one.id).path):
                raise IdTaken(one.id)
            taken.add(one.id)
        stored, new = self._database.write(insert)
        failpoint("recorded")
        for one in stored:
            make_folder(self.paths.root, one)
        failpoint("foldered")
        return stored[0], new

    def append(self, run_id: str, since: Reading, parts: Mapping[str, bytes]) -> tuple[Run, Reading]:
        """Take in new bytes of the run's files, read from ``since``. Appending twice is harmless."""

        return append_all(self, [(run_id, since, parts)])[run_id]

    def note(self, run_id: str, change: Callable[[Run], Run]) -> Run:
        """Record what only this side knows: contact, interruption, a run that its target lost."""
        changed = self._database.write(
            lambda connection: _update(connection, run_id, lambda run, reading: (change(run), reading))
        )
        return changed[0]

    def annotate(self, run_id: str, change: Callable[[Noted], Noted]) -> Run:
        """Record what people say of a run: a name, tags, a note. It goes into the run's folder, too."""

        def noted(run: Run) -> Run:
            changed = replace(run, noted=change(run.noted))
            write_noted(self.paths.root, run.spec, changed.noted)  # while nobody else can
            return changed

        return self.note(run_id, noted)

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
            for old in rows.select(connection, "id = ? OR (parent != '' AND id >= ? AND id < ?)", _own_ids(run_id)):
                rows.delete(connection, old)
            # While nobody else can write: a rebuild must not find the run again in what is left of its folder.
            for spec in (folder.spec, os.path.join(folder.path, FACTS)):
                with suppress(OSError):
                    os.unlink(spec)

        self._database.write(delete)
        remove(folder.path)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, prefix: str) -> Run:
        """Return the run with this ID, unique part of an ID, or name."""
        self._take_outside()
        found = self._database.read(lambda connection: self._look_up(connection, prefix))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(run.id for run in found[:5]) + (", …" if len(found) > 5 else "")
            raise Ambiguous(f"{prefix!r} matches several runs: {names}", "use more characters of the ID")
        recent = [run.id for run in self.search(Query(hidden=True, limit=5))]
        raise UnknownName("run", prefix, recent, "list runs with 'mlw history list'")

    def _look_up(self, connection: apsw.Connection, prefix: str) -> Runs:
        """The run of this id, else up to six that begin so, else that have it in them, else that are called so."""
        prefix = rows.clean(prefix)
        newest = " ORDER BY created DESC LIMIT 6"
        found = rows.select(connection, "id = ?", (prefix,))
        whole = "" if "." in prefix else " AND instr(id, '.') = 0"  # its beginning means a run, not those inside it
        if not found and prefix:
            found = rows.select(connection, f"id >= ? AND id < ?{whole}{newest}", (prefix, prefix + "\U0010ffff"))
        if not found and prefix:
            self._database.check(connection, rows.verify)  # before it is said that there is no such run
        for more in (whole, "") if prefix else ():
            found = found or rows.select(connection, f"instr(id, ?){more}{newest}", (prefix,), "NOT INDEXED")
        if not found and prefix:
            found = rows.select(connection, f"{_NAME} = ?{newest}", (prefix,), "NOT INDEXED")
        return [one.run for one in found]

    def by_key(self, key: str) -> Run | None:
        found = self._database.read(lambda connection: rows.select(connection, "key = ?", (rows.clean(key),)))
        return found[0].run if found else None

    def search(self, query: Query) -> Runs:
        """The runs that fit, in the order that was asked for."""
        return self.look(lambda connection: rows.fetch(connection, find(connection, query)))

    def look(self, body: Callable[[apsw.Connection], Answer], *, all_of_them: bool = True) -> Answer:
        """For ``overview``: run ``body`` over one unchanging state. Every row is looked at before, unless it needs few
        of them and checks those itself."""
        if not all_of_them:
            return self._database.read(body)
        self._take_outside()

        def look(connection: apsw.Connection) -> Answer:
            self._database.check(connection, rows.verify)
            return body(connection)

        return self._database.read(look)

    def unfinished(self, project_id: str | None = None) -> Runs:
        def unfinished(connection: apsw.Connection) -> Runs:
            rows.expect_unfinished(connection)
            where, values = ("AND project = ?", (project_id,)) if project_id else ("", ())
            found = rows.select(connection, f"final = 0 {where} ORDER BY created DESC", values)
            # Those inside a run go with it, and those outside one are looked at by every search.
            return [one.run for one in found if not one.run.spec.inside and not is_outside(one.run.id)]

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

    def _take_outside(self) -> None:
        """Scripts that ran outside a run have recorded what they did; those that have not ended are looked at again."""
        root = self.paths.root
        names = outside_names(root)
        if not names:
            return
        known = self._database.read(lambda connection: dict(connection.execute(_OUTSIDE)))
        # One that runs on another machine with the same home looks dead from here, until it tells its end itself.
        new = [name for name in names if not known.get(name) or (known[name] == _UNKNOWN and told_end(root, name))]

        def take(connection: apsw.Connection) -> None:
            for name in new:
                before = [(one.run, one.reading) for one in rows.select(connection, "id = ?", (name,))]
                for run, reading in read_family(root, name, *before):
                    put(connection, run, reading)

        if new:
            self._database.write(take)

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


def append_all(history: History, news: Sequence[News]) -> dict[str, tuple[Run, Reading]]:
    """``History.append`` for many runs, all or none of them. One transaction: each has to wait for the disk."""

    def append(connection: apsw.Connection) -> dict[str, tuple[Run, Reading]]:
        return {run_id: _update(connection, run_id, _taking(since, parts)) for run_id, since, parts in news}

    return history._database.write(append)


def release(history: History, run_id: str) -> None:
    """This process no longer answers for the submit: a run that was not started counts as interrupted."""

    def update(connection: apsw.Connection) -> None:
        for old in rows.select(connection, "id = ?", (run_id,)):
            if old.submitter == _submitter():
                rows.update(connection, old, old.run, old.reading, {})

    history._database.write(update)


def _update(connection: apsw.Connection, run_id: str, change: Change) -> tuple[Run, Reading]:
    old = _one(connection, run_id)
    run, reading = change(old.run, old.reading)
    if (run, reading) != (old.run, old.reading):
        rows.update(connection, old, run, reading, old.submitter)
        _write_children(connection, old.run, run)
    return run, reading


def _taking(since: Reading, parts: Mapping[str, bytes]) -> Change:
    """Take in new bytes, read from ``since``."""

    def change(run: Run, reading: Reading) -> tuple[Run, Reading]:
        # Another process may have been quicker with some of the files: those are left to its next look.
        new = {name: data for name, data in parts.items() if _at(reading, name) == _at(since, name)}
        return take_in(run, reading, new)

    return change


def _one(connection: apsw.Connection, run_id: str) -> rows.Stored:
    for found in rows.select(connection, "id = ?", (run_id,)):
        return found
    rows.verify(connection)
    raise RunRemoved(f"run {run_id} was removed")


def _write_children(connection: apsw.Connection, before: Run, run: Run) -> None:
    """The runs inside it, as far as they have changed. What people wrote on them stays."""
    ends = run.status.final != before.status.final
    told = {child_id(run.id, name) for name, told in run.children.items() if ends or told != before.children.get(name)}
    for child in children_of(run) if told else ():
        if child.id not in told:
            continue
        known = rows.select(connection, "id = ?", (child.id,))
        if not known:
            rows.insert(connection, child, Reading(), {})
        for old in known:
            rows.update(connection, old, replace(child, noted=old.run.noted), Reading(), {})


def _own_ids(run_id: str) -> tuple[str, str, str]:
    """A run, and from where to where the ids of those inside it are."""
    return run_id, f"{run_id}.", f"{run_id}/"


def _submitter() -> JsonDict:
    return dict(machine.identity(), pid=os.getpid(), start=machine.start_time(os.getpid()))


def _at(reading: Reading, name: str) -> int:
    return reading.offsets.get(name, 0)
