"""The index: damage is detected and repaired, older versions are migrated, and many processes write concurrently."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
from dataclasses import asdict, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import apsw
import pytest

from mlworkbench.errors import UnknownName
from mlworkbench.history import rows
from mlworkbench.history import store as history_store
from mlworkbench.history.expression import parse
from mlworkbench.history.history_api import History
from mlworkbench.history.run_query import Query
from mlworkbench.history.store import IdTaken
from mlworkbench.model import Entry, Run, RunSpec
from mlworkbench.paths import UserPaths
from tests.unit.history.test_run_state import SPEC


def spec(number: int, **changes: object) -> RunSpec:
    entry = Entry("script", "train.py", ("--lr", str(number / 1000), "--opt=adam"))
    facts = {"id": f"demo-{number:05}", "key": f"key-{number}", "created": 1000.0 + number, "entry": entry, **changes}
    return replace(SPEC, **facts)  # type: ignore[arg-type]


def paths(place: Path) -> UserPaths:
    result = UserPaths(place)
    os.makedirs(result.root.runs, exist_ok=True)
    return result


def write_files(folder: str, number: int) -> dict[str, bytes]:
    """Write metrics and events of a run to its folder. Every tenth run is unfinished."""
    kinds = [("accepted", {}), ("started", {}), ("finished", {"ending": "succeeded", "exit": 0, "elapsed": number})]
    if number % 10 == 0:
        kinds.pop()
    lines = [
        json.dumps({"w": "sup", "seq": seq, "t": 2000.0 + seq, "kind": kind, "data": data})
        for seq, (kind, data) in enumerate(kinds, 1)
    ]
    metrics = [json.dumps({"n": "accuracy", "v": number / 100}), json.dumps({"n": "odd name", "v": number})]
    parts = {"metrics/1": "\n".join(metrics).encode() + b"\n", "events.jsonl": "\n".join(lines).encode() + b"\n"}
    os.makedirs(os.path.join(folder, "metrics"), exist_ok=True)
    for name, data in parts.items():
        Path(folder, name).write_bytes(data)
    return parts


def fill(history: History, numbers: range) -> None:
    for number in numbers:
        stored, _ = history.add(spec(number))
        parts = write_files(history.paths.root.run(stored.id).path, number)
        history.append(stored.id, history.load(stored.id)[1], parts)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with two copies of an index of 60 runs: ``closed``, and ``crashed`` with 20 runs in the WAL."""
    place = tmp_path_factory.mktemp("sound")
    store = paths(place / "live")
    history = History(store)
    fill(history, range(1, 41))
    history.close()
    history = History(store)
    fill(history, range(41, 61))
    shutil.copytree(place / "live", place / "crashed")
    history.close()
    shutil.copytree(place / "live", place / "closed")
    return place


def list_runs(place: Path) -> list[Run]:
    history = History(paths(place))
    try:
        return history.list()
    finally:
        history.close()


def damage_file(place: Path, dice: random.Random) -> str:
    """Damage a file at random, and return the kind of damage."""
    database, wal = place / "history.db", place / "history.db-wal"
    kind = dice.choice(["header", "page", "byte", "swap", "cut", "zero", "wal byte", "wal cut", "wal page"])
    path = wal if kind.startswith("wal") and wal.exists() else database
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data))
    page = at // 4096 * 4096
    if kind == "header":
        at = dice.randrange(100)
        data[at : at + dice.randrange(1, 9)] = dice.randbytes(dice.randrange(1, 9))
    elif kind in ("page", "wal page"):
        data[page : page + 4096] = dice.randbytes(len(data[page : page + 4096]))
    elif kind in ("byte", "wal byte"):
        data[at] ^= 1 << dice.randrange(8)
    elif kind == "swap":
        other = dice.randrange(len(data)) // 4096 * 4096
        data[page : page + 4096], data[other : other + 4096] = data[other : other + 4096], data[page : page + 4096]
    elif kind == "zero":
        data[page : page + 4096] = bytes(len(data[page : page + 4096]))
    else:
        del data[at:]
    path.write_bytes(bytes(data))
    return kind


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("small", [True, False])
def test_random_damage_never_gives_wrong_results(sound, tmp_path, monkeypatch, seed, small):
    """Damage 50 copies per parameter set, with the full check of small files or without it, as for large files."""
    if not small:
        monkeypatch.setattr("mlworkbench.history.database._MAX_FULL_CHECK", 0)
    expected = expected_runs(sound)
    dice = random.Random(seed)
    aside = 0
    for number in range(50):
        place = tmp_path / str(number)
        kind = dice.choice(["closed", "crashed"])
        os.makedirs(place)
        os.symlink(sound / "closed" / "runs", place / "runs")
        for path in (sound / kind).glob("history.db*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, place)
        damage = kind, damage_file(place, dice)
        history = History(UserPaths(place))
        assert history.list() == expected, damage
        assert [run.id for run in history.unfinished()] == [run.id for run in expected if not run.status.final], damage
        assert history.search(Query(where=parse("accuracy > 0.3"))) == [
            run for run in expected if run.metrics["accuracy"] > 0.3
        ], damage
        assert history.get("demo-00033") == expected[27], damage
        history.close()
        aside += bool(list(place.glob("*.damaged-*")))
    assert aside > 15, "many damages cannot be overlooked, and were not"


def expected_runs(sound: Path) -> list[Run]:
    runs = list_runs(sound / "closed")
    assert len(runs) == 60
    return runs


def test_lost_writes_are_detected(sound, tmp_path):
    """SQLite silently drops the end of a damaged WAL, and with it the last runs."""
    place = tmp_path / "store"
    shutil.copytree(sound / "crashed", place)
    os.unlink(place / "history.db-shm")
    os.truncate(place / "history.db-wal", 0)
    assert list_runs(place) == expected_runs(sound)
    assert list(place.glob("*.damaged-*"))


VERSION_ONE = (
    """CREATE TABLE runs (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, key TEXT NOT NULL UNIQUE, project TEXT NOT NULL,
    created REAL NOT NULL, status TEXT NOT NULL, final INTEGER NOT NULL, hidden INTEGER NOT NULL,
    spec TEXT NOT NULL, state TEXT NOT NULL, reading TEXT NOT NULL, submitter TEXT NOT NULL
) WITHOUT ROWID""",
    "CREATE INDEX runs_by_project ON runs (project, created)",
    "CREATE INDEX runs_by_time ON runs (created)",
    "CREATE INDEX runs_unfinished ON runs (final) WHERE final = 0",
)


def test_version_two_is_migrated(tmp_path):
    """Version 2 has two tables. Its runs have no parameters, spans, or annotations."""
    store = paths(tmp_path)
    runs = [replace(Run(spec(number)), contact="no contact since 12:00") for number in range(5)]
    connection = apsw.Connection(str(store.database))
    for statement in VERSION_TWO:
        connection.execute(statement)
    connection.execute("INSERT INTO account VALUES (1, 5, 5, 0, 7, 0)")
    for run in runs:
        run_spec, new = run.spec, ("spans", "params", "told_tags", "files", "children", "noted")
        state = json.dumps({name: value for name, value in asdict(run).items() if name not in ("spec", *new)})
        row = (
            run_spec.id,
            run_spec.key,
            run_spec.number,
            run_spec.project_id,
            int(run_spec.created),
            run.status.value,
            0,
            0,
            "t.py",
            "local",
        )
        connection.execute(f"INSERT INTO runs VALUES (NULL, {', '.join('?' * 13)})", (*row, "{}", "{}", 0))
        body = json.dumps(run_spec.to_json()), state, json.dumps({"offsets": {"events.jsonl": 7}, "seqs": {}}), "{}"
        connection.execute("INSERT INTO bodies VALUES (?, ?, ?, ?, ?, 0)", (connection.last_insert_rowid(), *body))
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    history = History(store)
    assert history.list() == runs[::-1]
    assert history.load(runs[0].id)[1].offsets == {"events.jsonl": 7}
    history.close()
    assert not list(tmp_path.glob("*.damaged-*"))


VERSION_TWO = (
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


def test_version_one_is_migrated(tmp_path):
    """Facts that are stored only in the index are kept, such as a lost connection."""
    store = paths(tmp_path)
    runs = [replace(Run(spec(number)), contact="no contact since 12:00") for number in range(5)]
    connection = apsw.Connection(str(store.database))
    for statement in VERSION_ONE:
        connection.execute(statement)
    for run in runs:
        state = json.dumps({name: value for name, value in asdict(run).items() if name != "spec"})
        run_spec = run.spec
        reading = json.dumps({"offsets": {"events.jsonl": 7}, "seqs": {}})
        values = (
            run_spec.id,
            run_spec.number,
            run_spec.key,
            run_spec.project_id,
            run_spec.created,
            run.status.value,
            0,
            0,
        )
        texts = (json.dumps(run_spec.to_json()), state, reading, json.dumps({"pid": 1}))
        connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * 12)})", (*values, *texts))
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    history = History(store)
    assert history.list() == runs[::-1]
    assert history.load(runs[0].id)[1].offsets == {"events.jsonl": 7}
    assert history.by_key("key-3") == runs[3]
    history.close()
    assert not list(tmp_path.glob("*.damaged-*"))


def test_account_follows_every_change(tmp_path):
    history = History(paths(tmp_path))
    fill(history, range(1, 12))
    history.remove("demo-00010")
    history.remove("demo-00011")
    history.take_over("demo-00001")
    history.update("demo-00001", lambda run: replace(run, contact="none"))
    assert len(history.list()) == 9
    assert history.unfinished() == []
    assert history.rebuild() == 9
    assert len(history.list()) == 9
    with pytest.raises(UnknownName):
        history.get("demo-00010")
    history.close()
    assert not list(tmp_path.glob("*.damaged-*"))


def _add(place: Path, worker: int, count: int, barrier: Barrier, results: multiprocessing.Queue[str]) -> None:
    history_store.make_folder = lambda root, stored: None  # run folders are not needed here
    barrier.wait()
    history = History(UserPaths(place))
    try:
        for number in range(count):
            run_spec = spec(worker * 1000 + number)
            history.add(run_spec)
        results.put("")
    except Exception as error:  # noqa: BLE001
        results.put(f"{type(error).__name__}: {error}")


def test_fifty_processes_add_at_once(tmp_path):
    """Fifty processes add 40 runs each at the same time: none fails on a lock, and every number is unique."""
    store = paths(tmp_path)
    methods = multiprocessing.get_context("spawn" if os.name == "nt" else "fork")
    barrier, results = methods.Barrier(50, timeout=250), methods.Queue()
    workers = [methods.Process(target=_add, args=(tmp_path, worker, 40, barrier, results)) for worker in range(50)]
    for worker in workers:
        worker.start()
    errors = [results.get(timeout=250) for _ in workers]
    for worker in workers:
        worker.join()
    assert set(errors) == {""}
    history = History(store)
    runs = history.list()
    history.close()
    assert sorted(run.spec.number for run in runs) == list(range(1, 2_001))


def test_a_sweep_never_has_two_children_with_one_id(tmp_path):
    history = History(paths(tmp_path))
    with pytest.raises(IdTaken):
        history.add(spec(1), [spec(2), replace(spec(2), key="another")])
    assert history.search(Query()) == []


def test_a_run_that_records_too_much_affects_no_other_run(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MAX_STATE_BYTES", 20_000)
    history = History(paths(tmp_path))
    fill(history, range(1, 3))
    data = b"".join(json.dumps({"n": f"m{nth}", "v": "x" * 1000, "t": 1.0}).encode() + b"\n" for nth in range(100))
    folder = history.paths.root.run(history.add(spec(3))[0].id)
    os.makedirs(folder.metrics)
    Path(folder.metrics, "1").write_bytes(data)
    history.append("demo-00003", history.load("demo-00003")[1], {"metrics/1": data})
    for _ in range(2):
        metrics = {run.id: dict(run.metrics) for run in history.search(Query())}
        assert metrics["demo-00003"] == {}
        assert metrics["demo-00001"]["accuracy"] == 0.01
        history.rebuild()


def test_updating_one_nested_run_rewrites_no_other_row(tmp_path, monkeypatch):
    history = History(paths(tmp_path))
    history.add(spec(1))

    def tell(*children: str) -> list[str]:
        lines = [{"k": "metric", "d": {"run": child, "name": "loss", "value": 0.5}, "t": 2.0} for child in children]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        written = []
        with monkeypatch.context() as patch:
            update = rows.update
            patch.setattr(rows, "update", lambda *what: (written.append(what[2].id), update(*what)))
            history.append("demo-00001", history.load("demo-00001")[1], {"metrics/1": data})
        return written

    names = ["a" * 32, "b" * 32, "c" * 32]
    tell(*names)
    assert tell(names[0]) == ["demo-00001", "demo-00001.aaaaaaaa"]


def test_conditions_accept_numbers_of_any_length(tmp_path):
    history = History(paths(tmp_path))
    fill(history, range(1, 3))
    assert len(history.search(Query(where=parse("accuracy < " + "9" * 30)))) == 2
    assert history.search(Query(where=parse("accuracy > " + "9" * 5000))) == []
