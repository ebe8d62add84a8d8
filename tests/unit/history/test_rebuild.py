"""The index put right from the folders, while others write; and when it need not be looked at again."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.errors import HistoryError
from mlworkbench.history import checked, gather, renew, rows
from mlworkbench.history.door import History
from mlworkbench.history.expression import parse
from mlworkbench.history.overview import generation
from mlworkbench.history.query import Query
from mlworkbench.model import Run, Status
from mlworkbench.remote.shared import endings
from tests.unit.test_history_store import fill, paths, spec, write_files


@pytest.fixture
def history(tmp_path):
    store = History(paths(tmp_path))
    fill(store, range(1, 31))
    yield store
    store.close()
    assert not list(tmp_path.glob("*.damaged-*"))


def anew(place: Path) -> list[Run]:
    """What the folders alone tell."""
    for path in place.glob("history.db*"):
        path.unlink()
    fresh = History(paths(place))
    try:
        return fresh.list()
    finally:
        fresh.close()


def test_every_wrong_row_is_put_right(history, tmp_path):
    before = history.list()
    history.note("demo-00003", lambda run: replace(run, metrics={"accuracy": 99}))
    history.note("demo-00004", lambda run: replace(run, status=Status.FAILED))
    history._database.write(lambda c: rows.delete(c, rows.select(c, "id = ?", ("demo-00005",))[0]))
    shutil.rmtree(history.paths.root.run("demo-00006").path)
    assert history.rebuild() == 29
    assert history.list() == [run for run in before if run.id != "demo-00006"]
    history.close()
    assert history.list() == anew(tmp_path)


def test_others_write_meanwhile_and_nobody_waits(history, tmp_path):
    """Whoever had to wait for the end of the rebuild would wait here for ever."""
    other = History(paths(tmp_path))
    history.note("demo-00003", lambda run: replace(run, metrics={}))

    def meanwhile(done: int, total: int) -> None:
        other.add(spec(100))
        other.remove("demo-00009")
        other.note("demo-00010", lambda run: replace(run, contact="no contact since noon"))

    mine = History(paths(tmp_path), meanwhile)
    assert mine.rebuild() == 30
    assert {run.id for run in mine.list()} == {f"demo-{n:05}" for n in (*range(1, 31), 100) if n != 9}
    assert mine.submitter_lives("demo-00100"), "what no folder tells is kept"
    history.rebuild()
    assert mine.submitter_lives("demo-00100")
    for store in (mine, other):
        store.close()


def test_a_run_that_goes_on_meanwhile_does_not_fall_back(history, monkeypatch):
    """Between the reading of its folder and the look at its row it ends, and somebody takes that in."""
    read = gather.read_batch

    def late(root, names):
        stale = read(root, names)
        parts = write_files(root.run("demo-00010").path, 11)
        history.append("demo-00010", rows.Reading(), parts)
        return stale

    monkeypatch.setattr(gather, "read_batch", late)
    history.note("demo-00010", lambda run: replace(run, metrics={}))
    history._database.write(_read_nothing)
    assert history.rebuild() == 30
    assert history.get("demo-00010").status is Status.COMPLETED


def _read_nothing(connection):
    old = rows.select(connection, "id = ?", ("demo-00010",))[0]
    rows.update(connection, old, Run(old.run.spec), rows.Reading(), {})


def test_a_run_without_its_folder_yet_is_kept(history, monkeypatch):
    """Recorded, and its submit is about to make the folder."""
    monkeypatch.setattr("mlworkbench.history.store.make_folder", lambda root, stored: None)
    history.add(spec(200))
    assert history.rebuild() == 31
    assert history.get("demo-00200").status is Status.SUBMITTING


def test_what_only_the_index_knows_is_kept(history):
    history.note("demo-00010", lambda run: replace(run, status=Status.FAILED, ending=endings.TARGET_LOST))
    history.note("demo-00020", lambda run: replace(run, contact="no contact since noon"))
    history.rebuild()
    assert history.get("demo-00010").ending == endings.TARGET_LOST
    assert history.get("demo-00020").contact == "no contact since noon"


def test_a_removed_run_is_not_found_again(history, monkeypatch):
    """The rebuild has read its folder; the folder is still being deleted when the row is looked for."""
    monkeypatch.setattr("mlworkbench.history.store.remove", lambda path: None)
    read = gather.read_batch

    def removing(root, names):
        stale = read(root, names)
        history.remove("demo-00008")
        return stale

    monkeypatch.setattr(gather, "read_batch", removing)
    assert history.rebuild() == 29


@pytest.mark.skipif(not hasattr(os, "fork"), reason="one process reads all here")
@pytest.mark.parametrize("killed", [False, True])
def test_many_processes_read_the_same(history, monkeypatch, killed):
    root = history.paths.root
    names = sorted(os.listdir(root.runs))
    alone = gather.read_batch(root, names)
    assert len(alone) == 30
    monkeypatch.setattr(gather, "SIZE", 4)
    monkeypatch.setattr(gather, "_FEW", 0)
    monkeypatch.setattr(gather, "worker_count", lambda: 3)
    if killed:
        mine, read = os.getpid(), gather.read_batch

        def die(root, names):
            if os.getpid() != mine and "demo-00005" in names:
                os.kill(os.getpid(), signal.SIGKILL)
            return read(root, names)

        monkeypatch.setattr(gather, "read_batch", die)
    found = list(gather.gather(root, names))
    assert [done for done, _ in found] == [4, 8, 12, 16, 20, 24, 28, 30]
    assert [one for _, batch in found for one in batch] == alone


def test_progress_is_told(history, tmp_path):
    told = []
    for path in tmp_path.glob("history.db*"):
        path.unlink()
    mine = History(paths(tmp_path), lambda done, total: told.append((done, total)))
    assert len(mine.list()) == 30
    assert told == [(30, 30)]
    mine.rebuild()
    assert told == [(30, 30)] * 2
    mine.close()


def test_a_full_disk_leaves_nothing_half_done(history, tmp_path, monkeypatch):
    history.close()
    os.unlink(history.paths.database)

    def full(*_):
        raise HistoryError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(renew.rows, "pour", full)
        with pytest.raises(HistoryError):
            history.list()
    assert [path.name for path in tmp_path.glob("history.db*") if path.suffix != ".lock"] == ["history.db.mark"]
    assert len(history.list()) == 30


# -- checked already -----------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch):
    """How often all rows were looked at, with files that count as settled at once."""
    monkeypatch.setattr(checked, "_SETTLED", -1.0)
    seen = []
    verify = rows.verify
    monkeypatch.setattr(rows, "verify", lambda connection: (seen.append(1), verify(connection)))
    return seen


def test_what_has_not_changed_is_looked_at_once(history, looks, tmp_path):
    history.close()
    for _ in range(3):
        other = History(paths(tmp_path))
        assert len(other.list()) == 30
        other.close()
    assert len(looks) == 1
    history.add(spec(300))
    assert len(history.list()) == len(history.list()) == 31
    assert len(looks) == 2


def test_a_file_that_changed_just_now_is_not_trusted(history, looks, monkeypatch, tmp_path):
    monkeypatch.setattr(checked, "_SETTLED", 1000.0)
    other = History(paths(tmp_path))
    assert history.list() == other.list()
    other.close()
    assert len(looks) == 2


def test_whoever_stays_looks_again_only_after_a_write(history, looks, monkeypatch, tmp_path):
    """However young the file: SQLite tells a connection of every write, its own and those of others."""
    monkeypatch.setattr(checked, "_SETTLED", 1000.0)
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


def test_damage_after_the_look_is_noticed(tmp_path, looks):
    """In a row that the answer lacks: what is shown is checked anyway."""
    store = History(paths(tmp_path))
    asked = Query(where=parse("accuracy < 1"))
    fill(store, range(1, 31))
    before = store.search(asked)
    assert len(before) == 30
    store.close()
    assert History(paths(tmp_path)).search(asked) == before
    data = bytearray(store.paths.database.read_bytes())
    data[data.rindex(b'{"accuracy":0.') + 12] ^= 1  # 0.3 becomes 1.3
    facts = os.stat(store.paths.database)
    with open(store.paths.database, "r+b") as file:
        file.write(data)
    os.utime(store.paths.database, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert History(paths(tmp_path)).search(asked) == before
    assert list(tmp_path.glob("*.damaged-*"))
