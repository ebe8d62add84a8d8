"""The history: plain run folders are the truth, the index makes them quick to find."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import apsw

from ..errors import HistoryError, MlwError, UnknownName
from ..model import Event, JsonDict, Run, RunSpec, Status
from ..paths import UserPaths
from ..remote import machine
from ..remote.failpoint import failpoint
from ..remote.journal import read_json, write_whole
from ..remote.tree import remove
from .database import Database, Row
from .fold import fold
from .folders import read_folders, read_parts
from .reading import parse_events, parse_metrics

Runs = list[Run]

_COLUMNS = "id, number, key, project, created, status, final, hidden, spec, state, reading, submitter"


@dataclass(frozen=True)
class Reading:
    """How far the run's files have been read, and up to which event of each writer."""

    offsets: Mapping[str, int] = field(default_factory=lambda: {"events.jsonl": 0})
    seqs: Mapping[str, int] = field(default_factory=dict)


class IdTaken(Exception):
    """A run with this id exists; think of another."""


class Ambiguous(UnknownName):
    """A beginning that several runs share."""

    def __init__(self, message: str, hint: str) -> None:
        MlwError.__init__(self, message, hint)


class History:
    """The runs of this user."""

    def __init__(self, paths: UserPaths) -> None:
        self.paths = paths
        self._database = Database(paths.database, self._refill)

    # -- writing -----------------------------------------------------------------------------------

    def add(self, spec: RunSpec) -> tuple[RunSpec, bool]:
        """Record a run before anything leaves this machine. The same key is the same run: tells if it is new."""

        def insert(connection: apsw.Connection) -> tuple[RunSpec, bool]:
            for (text,) in connection.execute("SELECT spec FROM runs WHERE key = ?", (spec.key,)):
                return RunSpec.from_json(json.loads(text)), False
            if list(connection.execute("SELECT 1 FROM runs WHERE id = ?", (spec.id,))):
                raise IdTaken(spec.id)
            taken = connection.execute("SELECT max(number) FROM runs WHERE project = ?", (spec.project_id,))
            numbered = replace(spec, number=(next(iter(taken))[0] or 0) + 1)
            _insert(connection, Run(numbered), Reading(), _submitter())
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

        def take_in(run: Run, reading: Reading) -> tuple[Run, Reading]:
            # Another process may have been quicker with some of the files: those are left to its next look.
            new = {name: data for name, data in parts.items() if _at(reading, name) == _at(since, name)}
            return _take_in(run, reading, new)

        return self._change(run_id, take_in)

    def note(self, run_id: str, change: Callable[[Run], Run]) -> Run:
        """Record what only this side knows: contact, interruption, a run that its target lost."""
        return self._change(run_id, lambda run, reading: (change(run), reading))[0]

    def take_over(self, run_id: str) -> Run:
        """From now on this process answers for the submit."""
        submitter = json.dumps(_submitter())
        self._database.write(
            lambda connection: connection.execute("UPDATE runs SET submitter = ? WHERE id = ?", (submitter, run_id))
        )
        return self.note(run_id, lambda run: run if run.status.final else replace(run, detail=None))

    def remove(self, run_id: str) -> None:
        """Forget a run and delete its folder."""
        self._database.write(lambda connection: connection.execute("DELETE FROM runs WHERE id = ?", (run_id,)))
        remove(self.paths.root.run(run_id).path)

    def _change(self, run_id: str, change: Callable[[Run, Reading], tuple[Run, Reading]]) -> tuple[Run, Reading]:
        def update(connection: apsw.Connection) -> tuple[Run, Reading]:
            query = f"SELECT {_COLUMNS} FROM runs WHERE id = ?"
            for row in connection.execute(query, (run_id,)):
                old = _run(row), _reading(row)
                run, reading = change(*old)
                if (run, reading) != old:
                    connection.execute(
                        "UPDATE runs SET status = ?, final = ?, state = ?, reading = ? WHERE id = ?",
                        (run.status.value, run.status.final, _state(run), json.dumps(asdict(reading)), run_id),
                    )
                return run, reading
            raise HistoryError(f"run {run_id} has been removed")

        return self._database.write(update)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, prefix: str) -> Run:
        """The run with this id, or the only one whose id begins so, or the only one whose id has it in it."""
        exact = self._select("id = ?", (prefix,))
        if exact:
            return exact[0]
        end = prefix + "\U0010ffff"
        found = self._select("id >= ? AND id < ? ORDER BY created DESC LIMIT 6", (prefix, end)) if prefix else []
        if len(found) == 1:
            return found[0]
        if not found and prefix:
            found = self._select("instr(id, ?) ORDER BY created DESC LIMIT 6", (prefix,))
            if len(found) == 1:
                return found[0]
        if found:
            names = ", ".join(run.id for run in found[:5]) + (", …" if len(found) > 5 else "")
            raise Ambiguous(f"{prefix!r} could be any of {names}", "give more of the id")
        recent = [run.id for run in self._select("1 ORDER BY created DESC LIMIT 5", ())]
        raise UnknownName("run", prefix, recent, "list them with: mlw history list")

    def by_key(self, key: str) -> Run | None:
        found = self._select("key = ?", (key,))
        return found[0] if found else None

    def list(self, project_id: str | None = None, hidden: bool = False, limit: int | None = None) -> Runs:
        """Newest first."""
        where, values = ("project = ?", (project_id,)) if project_id else ("1", ())
        where += "" if hidden else " AND hidden = 0"
        return self._select(f"{where} ORDER BY created DESC, number DESC LIMIT ?", (*values, limit or -1))

    def unfinished(self, project_id: str | None = None) -> Runs:
        where, values = ("AND project = ?", (project_id,)) if project_id else ("", ())
        return self._select(f"final = 0 {where} ORDER BY created DESC", values)

    def reading(self, run_id: str) -> Reading:
        for row in self._database.read(f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (run_id,)):
            return _reading(row)
        raise HistoryError(f"run {run_id} has been removed")

    def submitter_lives(self, run_id: str) -> bool:
        """Whether the process that submitted the run is still there."""
        for (text,) in self._database.read("SELECT submitter FROM runs WHERE id = ?", (run_id,)):
            who, here = json.loads(text), machine.identity()
            same = all(who.get(name) == value for name, value in here.items())
            return same and machine.start_time(who["pid"]) == who["start"]
        return False

    def _select(self, where: str, values: Sequence[Any]) -> Runs:
        return [_run(row) for row in self._database.read(f"SELECT {_COLUMNS} FROM runs WHERE {where}", tuple(values))]

    # -- the index from the folders ----------------------------------------------------------------

    def rebuild(self) -> int:
        """Make the index anew from the run folders; tells how many runs it holds."""

        def again(connection: apsw.Connection) -> int:
            connection.execute("DELETE FROM runs")
            self._refill(connection)
            return int(next(iter(connection.execute("SELECT count(*) FROM runs")))[0])

        return self._database.write(again)

    def _refill(self, connection: apsw.Connection) -> None:
        for spec in read_folders(self.paths.root):
            run, reading = Run(spec), Reading()
            for parts in read_parts(self.paths.root.run(spec.id)):
                run, reading = _take_in(run, reading, parts)
            _insert(connection, run, reading, {})

    def close(self) -> None:
        self._database.close()


def _insert(connection: apsw.Connection, run: Run, reading: Reading, submitter: JsonDict) -> None:
    spec = run.spec
    connection.execute(
        f"INSERT OR IGNORE INTO runs ({_COLUMNS}) VALUES ({', '.join('?' * 12)})",
        (
            spec.id,
            spec.number,
            spec.key,
            spec.project_id,
            spec.created,
            run.status.value,
            run.status.final,
            not spec.tracked,
            json.dumps(spec.to_json()),
            _state(run),
            json.dumps(asdict(reading)),
            json.dumps(submitter),
        ),
    )


def _state(run: Run) -> str:
    return json.dumps({name: getattr(run, name) for name in Run.__dataclass_fields__ if name != "spec"})


def _run(row: Row) -> Run:
    state = json.loads(row[9])
    state.update(status=Status(state["status"]), leftovers=tuple(state["leftovers"]))
    return Run(RunSpec.from_json(json.loads(row[8])), **state)


def _reading(row: Row) -> Reading:
    return Reading(**json.loads(row[10]))


def _submitter() -> JsonDict:
    return dict(machine.identity(), pid=os.getpid(), start=machine.start_time(os.getpid()))


def _at(reading: Reading, name: str) -> int:
    return reading.offsets.get(name, 0)


def _take_in(run: Run, reading: Reading, parts: Mapping[str, bytes]) -> tuple[Run, Reading]:
    offsets, seqs, metrics = dict(reading.offsets), dict(reading.seqs), dict(run.metrics)
    for name, data in parts.items():
        if name == "events.jsonl":
            events, used = parse_events(data)
            new = _unseen(events, seqs)
            run = fold(run, new)
        elif name.startswith("metrics/"):
            points, used = parse_metrics(data)
            metrics.update(points)
        else:
            continue
        if used:
            offsets[name] = offsets.get(name, 0) + used
    return replace(run, metrics=metrics), Reading(offsets, seqs)


def _unseen(events: Iterable[Event], seqs: dict[str, int]) -> list[Event]:
    new = []
    for event in events:
        if event.seq > seqs.get(event.writer, 0):
            seqs[event.writer] = event.seq
            new.append(event)
    return new
