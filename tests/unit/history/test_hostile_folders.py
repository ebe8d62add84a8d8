"""A run that records far too much: other runs stay listed, and its record reports what was dropped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from mlworkbench.errors import HistoryError
from mlworkbench.history.history_api import History
from mlworkbench.history.run_folders import read_parts
from mlworkbench.history.run_query import Query
from mlworkbench.model import Entry, Run
from mlworkbench.remote.run_reader import RunUpdates
from mlworkbench.remote.shared import metric_limits
from mlworkbench.report.run_records import record
from tests.unit.history.test_store import fill, paths, spec

LIMIT = 300_000  # maximum size of a row in bytes; SQLite's default of 1 GB would need a run of that size


@pytest.fixture
def small_rows() -> Iterator[None]:
    def lower(connection: apsw.Connection) -> None:
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, LIMIT)

    apsw.connection_hooks.append(lower)
    yield
    apsw.connection_hooks.remove(lower)


@pytest.fixture
def history(tmp_path: Path, small_rows: None) -> History:
    """Create a history with two completed runs and the hostile run."""
    history = History(paths(tmp_path))
    fill(history, range(1, 3))
    history.add(spec(3))
    os.makedirs(history.paths.root.run("demo-00003").metrics)
    return history


def event(writer: str, seq: int, kind: str, **data: object) -> str:
    return json.dumps({"w": writer, "seq": seq, "t": 2000.0, "kind": kind, "data": data}) + "\n"


def write(history: History, name: str, text: str) -> None:
    """Write a file of the hostile run to its folder, and ingest it."""
    path = Path(history.paths.root.run("demo-00003").path, name)
    path.write_text(text)
    history.append("demo-00003", history.load("demo-00003")[1], {name: text.encode()})


def list_runs(history: History) -> dict[str, Run]:
    """Return all runs in the index, and check that no damage was detected in it."""
    runs = {run.id: run for run in history.search(Query())}
    assert sorted(runs) == ["demo-00001", "demo-00002", "demo-00003"]
    assert runs["demo-00001"].metrics["accuracy"] == 0.01
    damaged = [name for name in os.listdir(history.paths.database.parent) if "damaged" in name]
    assert damaged == []
    return runs


def rebuild(history: History) -> dict[str, Run]:
    for name in ("", "-wal", "-shm"):
        Path(f"{history.paths.database}{name}").unlink(missing_ok=True)
    return list_runs(History(history.paths))


def test_any_number_of_writers(history):
    supervisor_events = event("sup", 1, "accepted") + event("sup", 2, "started", time=2001.0)
    end = event("sup", 3, "finished", ending="succeeded", exit=0)
    others = "".join(event(f"{nth:09}" + "y" * 60, 1, "other") for nth in range(6000))
    write(history, "events.jsonl", supervisor_events + others + event("z" * 5000, 1, "other") + end)
    for runs in (list_runs(history), rebuild(history)):
        run = runs["demo-00003"]
        assert run.status.value == "Completed"
        left_out = record(run)["left_out"]
        assert left_out == ["5,938 events: at most 64 writers, with names of up to 200 characters"]


def test_the_supervisor_is_always_accepted(history):
    """The supervisor's events count even if a script has written many other events to the journal before them."""
    others = "".join(event(f"w{nth}", 1, "other") for nth in range(100))
    write(history, "events.jsonl", others + event("sup", 1, "finished", ending="failed", exit=3))
    assert list_runs(history)["demo-00003"].exit == 3


def test_any_number_of_metric_files(history, monkeypatch):
    monkeypatch.setattr(metric_limits, "MAX_FILES", 500)
    folder = history.paths.root.run("demo-00003")
    for nth in range(3000):
        Path(folder.metrics, f"{nth:04}" + "x" * 40).write_text('{"n":"loss","v":1,"t":1}\n')
    Path(folder.metrics, "a" * 200).write_text('{"n":"loss","v":1,"t":1}\n')
    Path(folder.events).write_text(event("sup", 1, "finished", ending="succeeded", exit=0))
    reading = history.load("demo-00003")[1]
    for _ in range(3):
        parts = dict(RunUpdates(folder, dict(reading.offsets)).parts(1 << 20))
        _, reading = history.append("demo-00003", reading, parts)
    assert not parts  # dropped files are not sent repeatedly
    for runs in (list_runs(history), rebuild(history)):
        run = runs["demo-00003"]
        assert run.status.value == "Completed"
        assert run.spans["loss"].length == 500
        assert record(run)["left_out"] == ["metric files: the first 10,000 are read"]


def test_folder_scan_is_linear(history, monkeypatch):
    """The size of each part is read a constant number of times, however many parts there are."""
    folder = history.paths.root.run("demo-00003")
    for nth in range(300):
        Path(folder.metrics, f"{nth:04}").write_bytes(b"\n")
    measured = []

    class CountedBytes(bytes):
        def __len__(self) -> int:
            measured.append(1)
            return super().__len__()

    from mlworkbench.history import run_folders

    pieces = run_folders._read_pieces
    monkeypatch.setattr(
        run_folders, "_read_pieces", lambda *arguments: (CountedBytes(piece) for piece in pieces(*arguments))
    )
    assert sum(map(dict.__len__, read_parts(folder, {}))) == 300
    assert len(measured) <= 3 * 300


@pytest.mark.parametrize("child", ["", "child"])
def test_any_number_of_names(history, monkeypatch, child):
    """The limit applies to names and texts together, including nested runs."""
    monkeypatch.setattr("mlworkbench.history.run_summary.MAX_CHARACTERS", 50_000)
    about = {"run": child} if child else {}
    lines = [{"k": "metric", "d": {**about, "name": f"{nth:03}" + "n" * 500, "value": 1.0}} for nth in range(300)]
    lines += [{"k": "param", "d": {**about, "name": f"p{nth}", "value": "x" * 5000}} for nth in range(100)]
    lines.insert(0, {"k": "metric", "d": {"name": "loss", "value": 0.5}})
    lines.append({"k": "metric", "d": {"name": "loss", "value": 0.25}})  # existing names are still updated
    write(history, "metrics/1", "".join(json.dumps(line) + "\n" for line in lines))
    for _ in range(2):
        runs = {run.id: run for run in history.search(Query())}
        assert runs["demo-00001"].metrics["accuracy"] == 0.01
        run = runs["demo-00003"]
        assert run.metrics["loss"] == 0.25
        first, second = record(run)["left_out"]
        assert first.endswith("metric values: too many, or their names or texts are too long")
        assert second.endswith("parameters, tags, files, or nested runs: too many or too long")
        assert len(json.dumps(run.children)) + len(json.dumps(dict(run.params))) < 100_000
        history.rebuild()


def test_values_that_grow(history, monkeypatch):
    monkeypatch.setattr("mlworkbench.history.run_summary.MAX_CHARACTERS", 50_000)
    for nth, size in enumerate((1, 10_000, 100_000, 10)):
        write(history, f"metrics/{nth}", json.dumps({"n": "text", "v": "x" * size, "t": 1.0}) + "\n")
    run = list_runs(history)["demo-00003"]
    assert run.metrics["text"] == "x" * 10
    assert run.over_limit == {"metrics": 1}


def test_the_number_of_searchable_values_is_limited(history, monkeypatch):
    """Every update of a run compares its values with the stored ones, so their size is limited."""
    monkeypatch.setattr("mlworkbench.history.run_values.MAX_CHARACTERS", 20_000)
    lines = [{"n": f"{nth:04}" + "n" * 20, "v": 1.0, "t": 1.0} for nth in range(2000)]
    write(history, "metrics/1", "".join(json.dumps(line) + "\n" for line in lines))
    for runs in (list_runs(history), rebuild(history)):
        run = runs["demo-00003"]
        assert len(run.metrics) == 2000
        assert record(run)["left_out"][0].endswith("are not indexed and cannot be used for search or sorting")


def test_a_row_that_is_too_large_is_not_damage(history):
    huge = spec(4, entry=Entry("script", "train.py", ("x" * LIMIT,)))
    with pytest.raises(HistoryError, match="demo-00004 is too large for the run history"):
        history.add(huge)
    list_runs(history)
    folder = history.paths.root.run("demo-00004")
    os.makedirs(folder.path)
    Path(folder.spec).write_text(json.dumps(huge.to_json()))
    history.rebuild()
    list_runs(history)
    rebuild(history)
