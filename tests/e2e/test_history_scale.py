"""A history of many runs: the answers are right, and nobody waits for them."""

from __future__ import annotations

import json
import random
import resource
from dataclasses import replace

import pytest

from mlworkbench.history import rows
from mlworkbench.history.store import History
from mlworkbench.model import Run, Status
from mlworkbench.paths import UserPaths
from tests.unit.test_history_store import spec

COUNT = 20_000


@pytest.fixture
def many(user):
    user.mlw("history", "list")
    dice = random.Random(1)
    runs = [
        replace(Run(spec(number)), status=Status.COMPLETED, metrics={"accuracy": dice.random()})
        for number in range(COUNT)
    ]

    def pour(connection):
        for run in runs:
            rows.pour(connection, run, rows.Reading(), {})
        rows.start_account(connection)

    history = History(UserPaths(user.store))
    history._database.write(pour)
    history.close()
    return user, runs


def test_a_search_among_many(many):
    user, runs = many
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = user.mlw("history", "list", "--where", "accuracy > 0.999 and lr < 10", "-o", "json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    wanted = [run.id for run in runs[::-1] if run.metrics["accuracy"] > 0.999 and int(run.id[5:]) < 10_000]
    assert [one["run_id"] for one in json.loads(done.out)] == wanted
    # On a quiet machine a tenth of this.
    assert after.ru_utime - before.ru_utime < 2.0
    best = user.mlw("history", "list", "--sort", "-accuracy", "-n", "1", "--query", "[0].run_id", "-o", "tsv")
    assert best.out.strip() == max(runs, key=lambda run: run.metrics["accuracy"]).id
    assert user.mlw("history", "info", "demo-19999", "--query", "run_id", "-o", "tsv").out.strip() == "demo-19999"
    assert user.mlw("history", "info", "no-such-run").code == 66
