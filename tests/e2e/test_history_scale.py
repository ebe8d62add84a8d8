"""A history of many runs: queries are correct and fast, even during a rebuild."""

from __future__ import annotations

import json
import random
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mlworkbench.history import rows
from mlworkbench.history.store import History
from mlworkbench.history.value_index import ValueWriter
from mlworkbench.model import Run, Status
from mlworkbench.paths import UserPaths
from tests.conftest import MLW
from tests.unit.history.test_store import spec, write_files

COUNT = 20_000
FOLDERS = 2_100  # enough for a rebuild to use worker processes: see history/parallel_read.py


@pytest.fixture
def many(user):
    user.mlw("history", "list")
    dice = random.Random(1)
    runs = [
        replace(Run(spec(number)), status=Status.COMPLETED, metrics={"accuracy": dice.random()})
        for number in range(COUNT)
    ]

    def pour(connection):
        values = ValueWriter(connection)
        for run in runs:
            rows.bulk_insert(connection, rows.encode(run, rows.ReadPosition(), {}), values)
        values.flush()
        rows.recount_account(connection)

    history = History(UserPaths(user.store))
    history._database.write(pour)
    history.close()
    return user, runs


@pytest.mark.installed  # a fork is not a child of this process, so its CPU time would not be counted
def test_search_among_many_runs(many):
    user, runs = many
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = user.mlw("history", "list", "--where", "accuracy > 0.999 and lr < 10", "-o", "json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    expected = [run.id for run in runs[::-1] if run.metrics["accuracy"] > 0.999 and int(run.id[5:]) < 10_000]
    assert [row["run_id"] for row in json.loads(done.out)] == expected
    # An idle machine needs a tenth of this.
    assert after.ru_utime - before.ru_utime < 2.0
    best = user.mlw("history", "list", "--sort", "-accuracy", "-n", "1", "--query", "[0].run_id", "-o", "tsv")
    assert best.out.strip() == max(runs, key=lambda run: run.metrics["accuracy"]).id
    assert user.mlw("history", "info", "demo-19999", "--query", "run_id", "-o", "tsv").out.strip() == "demo-19999"
    assert user.mlw("history", "info", "no-such-run").code == 66


@pytest.fixture
def folders(user):
    """A store with runs that the index does not contain yet."""
    user.mlw("history", "list")
    for number in range(1, FOLDERS + 1):
        run = replace(spec(number), number=number)
        folder = Path(UserPaths(user.store).root.run(run.id).path)
        write_files(str(folder), number * 10 + 1)
        (folder / "spec.json").write_text(json.dumps(asdict(run)))
    return user


def test_submits_continue_during_rebuild(folders):
    user = folders
    project = user.project("demo", train="print(1)")
    rebuild = subprocess.Popen([str(MLW), "history", "rebuild"], env=user.env, stderr=subprocess.PIPE, text=True)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: user.mlw("submit", "train.py", cwd=project), range(6)))
    _, stderr = rebuild.communicate()
    assert [row for row in done if row.code != 0] == []
    assert rebuild.returncode == 0, stderr
    # Rebuild from the folders again, now without concurrent submits.
    assert f"indexed {FOLDERS + 6} runs" in user.mlw("history", "rebuild").err
    listed = [row["run_id"] for row in user.runs()]
    assert len(listed) == len(set(listed)) == FOLDERS + 6
    assert {row.run for row in done} <= set(listed)
    assert not list(user.store.glob("*.damaged-*"))


@pytest.mark.parametrize(("stage", "lost"), [("renewed:kill:3", False), ("filled:kill", True)])
def test_killed_rebuild_loses_nothing(folders, stage, lost):
    """Kill the repair of a live index halfway, or the build of a new one before it replaces the old."""
    user = folders
    if lost:
        for path in user.store.glob("history.db*"):
            path.unlink()
    assert user.mlw("history", "rebuild", env={"MLW_FAILPOINT": stage}).code == -9
    count = len(user.runs())
    assert count == FOLDERS if lost else 0 < count < FOLDERS
    assert user.mlw("history", "info", "demo-00001").code == 0
    assert f"indexed {FOLDERS} runs" in user.mlw("history", "rebuild").err
    assert len(user.runs()) == FOLDERS
    assert [path.name for path in user.store.glob("history.db*.new*")] == []
    assert not list(user.store.glob("*.damaged-*"))
