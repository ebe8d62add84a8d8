"""Groups of runs by a value, with statistics on their metrics."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from mlworkbench.errors import UnknownName, UsageError
from mlworkbench.history.run_query import Query
from mlworkbench.history.store import History
from mlworkbench.model import Annotations, Entry
from mlworkbench.report.run_groups import groups
from tests.unit.history.test_store import paths, spec


@pytest.fixture
def history(tmp_path):
    store = History(paths(tmp_path))
    yield store
    store.close()


def add(history: History, number: int, arguments: tuple[str, ...] = (), **facts: object) -> None:
    history.add(spec(number, entry=Entry("script", "train.py", arguments)))
    history.update(spec(number).id, lambda run: replace(run, **facts))


def counts(history: History, name: str, query: Query | None = None) -> dict[object, int]:
    return {row[name]: row["runs"] for row in groups(history, query or Query(), name)}


def test_values_to_group_by(history):
    noted = Annotations(tags=("team=vision", "best", "fold:3"))
    add(
        history,
        0,
        ("--batch-size", "32", "--fast"),
        params={"lr": 0.1, "flag": True, "layers": [1, 2]},
        metrics={"loss": 1.0, "lr": 7},
        noted=noted,
    )
    for name, value in {
        "batch_size": 32, "batch-size": 32, "params.batch-size": 32, "lr": 0.1, "metrics.lr": 7, "loss": 1,
        "flag": True, "layers": "[1, 2]", "team": "vision", "tags.team": "vision", "tag.fold": 3, "fast": "yes",
        "best": "yes", "status": "Submitting", "target": "local", "script": "train.py",
        "tags": "team=vision, best, fold:3",
    }.items():  # fmt: skip
        assert counts(history, name) == {value: 1}, name
    with pytest.raises(UnknownName, match="nothing"):
        groups(history, Query(), "nothing")
    with pytest.raises(UsageError, match="reserved"):
        groups(history, Query(), "runs")


def test_groups_aggregate_metrics(history):
    for number, (lr, loss) in enumerate((("0.1", 1.0), ("1e-1", 3.0), ("adam", 2), ("2", math.nan), ("10", math.inf))):
        add(history, number, ("--lr", lr), metrics={"loss": loss})
    add(history, 9)
    add(history, 10, ("--lr", "0.1"), metrics={"loss": 100.0})
    query = Query(since=0.0, where=None, scripts=["train.py"])
    history.annotate("demo-00010", lambda noted: replace(noted, archived=True))
    rows = groups(history, query, "lr")
    assert [row["lr"] for row in rows] == [0.1, 2, 10, "adam", None]
    assert rows[0]["metrics"]["loss"] == {
        "runs": 2,
        "goal": "min",
        "best": 1.0,
        "best_run": "demo-00000",
        "mean": 2.0,
        "deviation": pytest.approx(math.sqrt(2)),
        "least": 1.0,
        "greatest": 3.0,
    }
    assert rows[3]["metrics"]["loss"]["deviation"] is None
    assert rows[1]["metrics"] == rows[2]["metrics"] == rows[4]["metrics"] == {}
    assert groups(history, Query(project="another"), "lr") == []


def test_metrics_of_different_runs(history):
    """Most metrics have numbers in the same runs, and share the work."""
    for number, metrics in enumerate(({"a": 1, "b": 5}, {"a": 3, "loss": 2}, {"a": 3, "b": 7}, {"b": 9})):
        add(history, number, ("--lr", str(number // 3)), metrics=metrics, noted=Annotations(tags=("goal.a=max",)))
    first, second = (row["metrics"] for row in groups(history, Query(), "lr"))
    assert {name: facts["mean"] for name, facts in first.items()} == {"a": pytest.approx(7 / 3), "b": 6, "loss": 2}
    assert first["a"]["best_run"] == "demo-00002", "the newest of the best"
    assert {name: facts["greatest"] for name, facts in second.items()} == {"b": 9}


def test_huge_numbers_and_stated_goals(history):
    for number in range(3):
        metrics = {"x": 1.7e308 * (-1) ** number}
        add(history, number, ("--lr", "1"), metrics=metrics, noted=Annotations(tags=("goal.x=minimize",)))
    rows = groups(history, Query(), "lr")
    json.dumps(rows, allow_nan=False)
    assert (rows[0]["metrics"]["x"]["goal"], rows[0]["metrics"]["x"]["best_run"]) == ("min", "demo-00001")


def test_a_group_of_few_runs_reads_only_their_values(history):
    for number in range(45):
        add(history, number, ("--lr", "1"), metrics={"loss": number})
    rows = groups(history, Query(scripts=["train.py"], since=1044.0), "lr")
    assert [(row["runs"], row["metrics"]["loss"]["mean"]) for row in rows] == [(1, 44.0)]
