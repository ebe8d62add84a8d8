"""The index: damage is noticed and cured, older ones are taken over, many processes write at once."""

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
from mlworkbench.history.door import History
from mlworkbench.history.expression import parse
from mlworkbench.history.query import Query
from mlworkbench.history.store import IdTaken
from mlworkbench.model import Entry, Run, RunSpec
from mlworkbench.paths import UserPaths
from tests.unit.test_fold import SPEC


def spec(number: int, **changes: object) -> RunSpec:
    entry = Entry("script", "train.py", ("--lr", str(number / 1000), "--opt=adam"))
    facts = {"id": f"demo-{number:05}", "key": f"key-{number}", "created": 1000.0 + number, "entry": entry, **changes}
    return replace(SPEC, **facts)  # type: ignore[arg-type]


def paths(place: Path) -> UserPaths:
    found = UserPaths(place)
    os.makedirs(found.root.runs, exist_ok=True)
    return found


def write_files(folder: str, number: int) -> dict[str, bytes]:
    """Metrics and events of a run that has ended, as its folder has them."""
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
        history.append(stored.id, history.known(stored.id)[1], parts)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 runs. The last of them are still in the WAL: as after a crash, nothing was folded in at a close."""
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


def truth(place: Path) -> list[Run]:
    history = History(paths(place))
    try:
        return history.list()
    finally:
        history.close()


def harm(place: Path, dice: random.Random) -> str:
    """Do one random damage; its name."""
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
def test_two_hundred_damages_and_no_wrong_answer(sound, tmp_path, monkeypatch, seed, small):
    """2 × 50 with the check of small files as a whole, and as many without it, as in a large file."""
    if not small:
        monkeypatch.setattr("mlworkbench.history.database._CHECKED_BELOW", 0)
    wanted = truth_of_folders(sound)
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
        what = kind, harm(place, dice)
        history = History(UserPaths(place))
        assert history.list() == wanted, what
        assert [run.id for run in history.unfinished()] == [run.id for run in wanted if not run.status.final], what
        assert history.search(Query(where=parse("accuracy > 0.3"))) == [
            run for run in wanted if run.metrics["accuracy"] > 0.3
        ], what
        assert history.get("demo-00033") == wanted[27], what
        history.close()
        aside += bool(list(place.glob("*.damaged-*")))
    assert aside > 15, "many damages cannot be overlooked, and were not"


def truth_of_folders(sound: Path) -> list[Run]:
    runs = truth(sound / "closed")
    assert len(runs) == 60
    return runs


def test_lost_writes_are_noticed(sound, tmp_path):
    """SQLite drops the end of a damaged WAL without a word, and with it runs."""
    place = tmp_path / "store"
    shutil.copytree(sound / "crashed", place)
    os.unlink(place / "history.db-shm")
    os.truncate(place / "history.db-wal", 0)
    assert truth(place) == truth_of_folders(sound)
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


def test_version_two_is_taken_over(tmp_path):
    """The index that was last in use: two tables, and runs that know nothing of parameters, spans and notes."""
    store = paths(tmp_path)
    runs = [replace(Run(spec(number)), contact="no contact since 12:00") for number in range(5)]
    connection = apsw.Connection(str(store.database))
    for statement in VERSION_TWO:
        connection.execute(statement)
    connection.execute("INSERT INTO account VALUES (1, 5, 5, 0, 7, 0)")
    for run in runs:
        one, new = run.spec, ("spans", "params", "told_tags", "files", "children", "noted")
        state = json.dumps({name: value for name, value in asdict(run).items() if name not in ("spec", *new)})
        row = (one.id, one.key, one.number, one.project_id, int(one.created), run.status.value, 0, 0, "t.py", "local")
        connection.execute(f"INSERT INTO runs VALUES (NULL, {', '.join('?' * 13)})", (*row, "{}", "{}", 0))
        body = json.dumps(one.to_json()), state, json.dumps({"offsets": {"events.jsonl": 7}, "seqs": {}}), "{}"
        connection.execute("INSERT INTO bodies VALUES (?, ?, ?, ?, ?, 0)", (connection.last_insert_rowid(), *body))
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    history = History(store)
    assert history.list() == runs[::-1]
    assert history.known(runs[0].id)[1].offsets == {"events.jsonl": 7}
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


def test_version_one_is_taken_over(tmp_path):
    """With what only the index knows: here, that there is no contact."""
    store = paths(tmp_path)
    runs = [replace(Run(spec(number)), contact="no contact since 12:00") for number in range(5)]
    connection = apsw.Connection(str(store.database))
    for statement in VERSION_ONE:
        connection.execute(statement)
    for run in runs:
        state = json.dumps({name: value for name, value in asdict(run).items() if name != "spec"})
        one = run.spec
        reading = json.dumps({"offsets": {"events.jsonl": 7}, "seqs": {}})
        values = (one.id, one.number, one.key, one.project_id, one.created, run.status.value, 0, 0)
        texts = (json.dumps(one.to_json()), state, reading, json.dumps({"pid": 1}))
        connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * 12)})", (*values, *texts))
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    history = History(store)
    assert history.list() == runs[::-1]
    assert history.known(runs[0].id)[1].offsets == {"events.jsonl": 7}
    assert history.by_key("key-3") == runs[3]
    history.close()
    assert not list(tmp_path.glob("*.damaged-*"))


def test_account_follows_every_change(tmp_path):
    history = History(paths(tmp_path))
    fill(history, range(1, 12))
    history.remove("demo-00010")
    history.remove("demo-00011")
    history.take_over("demo-00001")
    history.note("demo-00001", lambda run: replace(run, contact="none"))
    assert len(history.list()) == 9
    assert history.unfinished() == []
    assert history.rebuild() == 9
    assert len(history.list()) == 9
    with pytest.raises(UnknownName):
        history.get("demo-00010")
    history.close()
    assert not list(tmp_path.glob("*.damaged-*"))


def _add(place: Path, worker: int, count: int, together: Barrier, answers: multiprocessing.Queue[str]) -> None:
    history_store.make_folder = lambda root, stored: None  # the index is what is tried
    together.wait()
    history = History(UserPaths(place))
    try:
        for number in range(count):
            one = spec(worker * 1000 + number)
            history.add(one)
        answers.put("")
    except Exception as error:  # noqa: BLE001
        answers.put(f"{type(error).__name__}: {error}")


def test_fifty_processes_add_at_once(tmp_path):
    """50 × 40 runs, all from one moment on: nobody is told of a lock, every number is given once."""
    store = paths(tmp_path)
    methods = multiprocessing.get_context("spawn" if os.name == "nt" else "fork")
    together, answers = methods.Barrier(50, timeout=250), methods.Queue()
    workers = [methods.Process(target=_add, args=(tmp_path, worker, 40, together, answers)) for worker in range(50)]
    for worker in workers:
        worker.start()
    told = [answers.get(timeout=250) for _ in workers]
    for worker in workers:
        worker.join()
    assert set(told) == {""}
    history = History(store)
    runs = history.list()
    history.close()
    assert sorted(run.spec.number for run in runs) == list(range(1, 2_001))


def test_a_sweep_never_gets_two_children_of_one_id(tmp_path):
    history = History(paths(tmp_path))
    with pytest.raises(IdTaken):
        history.add(spec(1), [spec(2), replace(spec(2), key="another")])
    assert history.search(Query()) == []


def test_a_run_that_tells_too_much_costs_no_other_run(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MOST_STATE", 20_000)
    history = History(paths(tmp_path))
    fill(history, range(1, 3))
    told = b"".join(json.dumps({"n": f"m{nth}", "v": "x" * 1000, "t": 1.0}).encode() + b"\n" for nth in range(100))
    folder = history.paths.root.run(history.add(spec(3))[0].id)
    os.makedirs(folder.metrics)
    Path(folder.metrics, "1").write_bytes(told)
    history.append("demo-00003", history.known("demo-00003")[1], {"metrics/1": told})
    for _ in range(2):
        metrics = {run.id: dict(run.metrics) for run in history.search(Query())}
        assert metrics["demo-00003"] == {}
        assert metrics["demo-00001"]["accuracy"] == 0.01
        history.rebuild()


def test_one_child_that_goes_on_changes_no_row_of_the_others(tmp_path, monkeypatch):
    history = History(paths(tmp_path))
    history.add(spec(1))

    def tell(*children: str) -> list[str]:
        lines = [{"k": "metric", "d": {"run": one, "name": "loss", "value": 0.5}, "t": 2.0} for one in children]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        written = []
        with monkeypatch.context() as patch:
            update = rows.update
            patch.setattr(rows, "update", lambda *what: (written.append(what[2].id), update(*what)))
            history.append("demo-00001", history.known("demo-00001")[1], {"metrics/1": data})
        return written

    names = ["a" * 32, "b" * 32, "c" * 32]
    tell(*names)
    assert tell(names[0]) == ["demo-00001", "demo-00001.aaaaaaaa"]


def test_a_number_of_any_length_can_be_asked_for(tmp_path):
    history = History(paths(tmp_path))
    fill(history, range(1, 3))
    assert len(history.search(Query(where=parse("accuracy < " + "9" * 30)))) == 2
    assert history.search(Query(where=parse("accuracy > " + "9" * 5000))) == []
