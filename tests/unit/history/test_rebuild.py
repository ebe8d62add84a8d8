"""Rebuilding the index from the run folders during concurrent writes, and when the index is verified again."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.errors import HistoryError
from mlworkbench.history import parallel_read, rebuild, rows, verification
from mlworkbench.history.expression import parse
from mlworkbench.history.history_api import History
from mlworkbench.history.run_counts import generation
from mlworkbench.history.run_query import Query
from mlworkbench.history.run_values import sort_key
from mlworkbench.model import Run, Status
from mlworkbench.remote.shared import run_endings
from tests.unit.history.test_store import fill, paths, spec, write_files


@pytest.fixture
def history(tmp_path):
    store = History(paths(tmp_path))
    fill(store, range(1, 31))
    yield store
    store.close()
    assert not list(tmp_path.glob("*.damaged-*"))


def rebuild_from_folders(place: Path) -> list[Run]:
    """Return the runs of an index built from the folders alone."""
    for path in place.glob("history.db*"):
        path.unlink()
    fresh = History(paths(place))
    try:
        return fresh.list()
    finally:
        fresh.close()


def test_every_wrong_row_is_repaired(history, tmp_path):
    before = history.list()
    history.update("demo-00003", lambda run: replace(run, metrics={"accuracy": 99}))
    history.update("demo-00004", lambda run: replace(run, status=Status.FAILED))
    history._database.write(lambda c: rows.delete(c, rows.select(c, "id = ?", ("demo-00005",))[0]))
    shutil.rmtree(history.paths.root.run("demo-00006").path)
    assert history.rebuild() == 29
    assert history.list() == [run for run in before if run.id != "demo-00006"]
    history.close()
    assert history.list() == rebuild_from_folders(tmp_path)


def test_other_processes_write_during_a_rebuild(history, tmp_path):
    """The writes take place inside the rebuild, so the test would deadlock if they had to wait for its end."""
    other = History(paths(tmp_path))
    history.update("demo-00003", lambda run: replace(run, metrics={}))

    def meanwhile(done: int, total: int) -> None:
        other.add(spec(100))
        other.remove("demo-00009")
        other.update("demo-00010", lambda run: replace(run, contact="no contact since noon"))

    mine = History(paths(tmp_path), meanwhile)
    assert mine.rebuild() == 30
    assert {run.id for run in mine.list()} == {f"demo-{n:05}" for n in (*range(1, 31), 100) if n != 9}
    assert mine.is_submitter_alive("demo-00100"), "facts that are not in a folder are kept"
    history.rebuild()
    assert mine.is_submitter_alive("demo-00100")
    for store in (mine, other):
        store.close()


def test_a_run_that_continues_meanwhile_does_not_regress(history, monkeypatch):
    """The run ends and is ingested after its folder was read and before its row is checked."""
    read = parallel_read.read_batch

    def late(root, names):
        stale = read(root, names)
        parts = write_files(root.run("demo-00010").path, 11)
        history.append("demo-00010", rows.ReadPosition(), parts)
        return stale

    monkeypatch.setattr(parallel_read, "read_batch", late)
    history.update("demo-00010", lambda run: replace(run, metrics={}))
    history._database.write(_read_nothing)
    assert history.rebuild() == 30
    assert history.get("demo-00010").status is Status.COMPLETED


def _read_nothing(connection):
    old = rows.select(connection, "id = ?", ("demo-00010",))[0]
    rows.update(connection, old, Run(old.run.spec), rows.ReadPosition(), {})


def test_a_run_without_a_folder_yet_is_kept(history, monkeypatch):
    """The run is in the index, but its submission has not created the folder yet."""
    monkeypatch.setattr("mlworkbench.history.store.make_folder", lambda root, stored: None)
    history.add(spec(200))
    assert history.rebuild() == 31
    assert history.get("demo-00200").status is Status.SUBMITTING


def test_facts_that_only_the_index_has_are_kept(history):
    history.update("demo-00010", lambda run: replace(run, status=Status.FAILED, ending=run_endings.TARGET_LOST))
    history.update("demo-00020", lambda run: replace(run, contact="no contact since noon"))
    history.rebuild()
    assert history.get("demo-00010").ending == run_endings.TARGET_LOST
    assert history.get("demo-00020").contact == "no contact since noon"


def test_a_removed_run_is_not_found_again(history, monkeypatch):
    """The run is removed after the rebuild has read its folder, and the folder still exists."""
    monkeypatch.setattr("mlworkbench.history.store.remove", lambda path: None)
    read = parallel_read.read_batch

    def removing(root, names):
        stale = read(root, names)
        history.remove("demo-00008")
        return stale

    monkeypatch.setattr(parallel_read, "read_batch", removing)
    assert history.rebuild() == 29


@pytest.mark.skipif(not hasattr(os, "fork"), reason="one process reads all here")
@pytest.mark.parametrize("killed", [False, True])
def test_many_processes_read_the_same(history, monkeypatch, killed):
    root = history.paths.root
    names = sorted(os.listdir(root.runs))
    expected = parallel_read.read_batch(root, names)
    assert len(expected) == 30
    monkeypatch.setattr(parallel_read, "BATCH_SIZE", 4)
    monkeypatch.setattr(parallel_read, "_MIN_FOR_WORKERS", 0)
    monkeypatch.setattr(parallel_read, "worker_count", lambda: 3)
    if killed:
        parent, read = os.getpid(), parallel_read.read_batch

        def die(root, names):
            if os.getpid() != parent and "demo-00005" in names:
                os.kill(os.getpid(), signal.SIGKILL)
            return read(root, names)

        monkeypatch.setattr(parallel_read, "read_batch", die)
    batches = list(parallel_read.read_in_batches(root, names))
    assert [done for done, _ in batches] == [4, 8, 12, 16, 20, 24, 28, 30]
    assert [item for _, batch in batches for item in batch] == expected


def test_progress_is_reported(history, tmp_path):
    calls = []
    for path in tmp_path.glob("history.db*"):
        path.unlink()
    fresh = History(paths(tmp_path), lambda done, total: calls.append((done, total)))
    assert len(fresh.list()) == 30
    assert calls == [(30, 30)]
    fresh.rebuild()
    assert calls == [(30, 30)] * 2
    fresh.close()


def test_a_full_disk_leaves_no_partial_index(history, tmp_path, monkeypatch):
    history.close()
    os.unlink(history.paths.database)

    def full(*_):
        raise HistoryError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rebuild.rows, "bulk_insert", full)
        with pytest.raises(HistoryError):
            history.list()
    assert [path.name for path in tmp_path.glob("history.db*") if path.suffix != ".lock"] == ["history.db.mark"]
    assert len(history.list()) == 30


# -- skipped verification ------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch):
    """Record each verification of all rows. Disable the minimum age of files whose verification is remembered."""
    monkeypatch.setattr(verification, "_MIN_AGE", -1.0)
    calls = []
    verify = rows.verify
    monkeypatch.setattr(rows, "verify", lambda connection: (calls.append(1), verify(connection)))
    return calls


def test_an_unchanged_index_is_verified_once(history, looks, tmp_path):
    history.close()
    for _ in range(3):
        other = History(paths(tmp_path))
        assert len(other.list()) == 30
        other.close()
    assert len(looks) == 1
    history.add(spec(300))
    assert len(history.list()) == len(history.list()) == 31
    assert len(looks) == 2


def test_a_recently_changed_file_is_verified_again(history, looks, monkeypatch, tmp_path):
    monkeypatch.setattr(verification, "_MIN_AGE", 1000.0)
    other = History(paths(tmp_path))
    assert history.list() == other.list()
    other.close()
    assert len(looks) == 2


def test_an_open_connection_verifies_again_only_after_a_write(history, looks, monkeypatch, tmp_path):
    """The age of the file does not matter: SQLite reports all writes to an open connection, including its own."""
    monkeypatch.setattr(verification, "_MIN_AGE", 1000.0)
    assert history.list() == history.list()
    assert len(looks) == 1
    history.add(spec(300))
    assert len(history.list()) == len(history.list()) == 31
    assert len(looks) == 2
    other = History(paths(tmp_path))
    before = generation(history)
    other.add(spec(301))
    assert generation(history) > before
    assert len(history.list()) == len(history.list()) == 32
    assert len(looks) == 3
    other.close()


def test_damage_after_the_verification_is_detected(tmp_path, looks):
    """The damage removes a row from the result, so verifying only the rows in the result would not detect it."""
    store = History(paths(tmp_path))
    query = Query(where=parse("accuracy < 1"))
    fill(store, range(1, 31))
    before = store.search(query)
    assert len(before) == 30
    store.close()
    assert History(paths(tmp_path)).search(query) == before
    small, large = (sort_key(value).to_bytes(8, "big") for value in (0.3, 1.3))
    data = store.paths.database.read_bytes()
    assert data.count(small) == 2, "in the table and in its index"
    data = data.replace(small, large)
    status = os.stat(store.paths.database)
    with open(store.paths.database, "r+b") as file:
        file.write(data)
    os.utime(store.paths.database, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert History(paths(tmp_path)).search(query) == before
    assert list(tmp_path.glob("*.damaged-*"))
