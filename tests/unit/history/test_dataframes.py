"""Python API: runs and metrics for programs and notebooks."""

from __future__ import annotations

import sys

import pytest

from mlworkbench.errors import UnknownName, UsageError
from mlworkbench.history.history_api import History
from tests.unit.history.test_nested_runs import ONE, add, record_line
from tests.unit.history.test_store import paths

POINTS = [{"n": "loss", "v": 1 / (at + 1), "s": at, "t": 100.0 + at} for at in range(5)]


@pytest.fixture
def history(tmp_path):
    store = History(paths(tmp_path))
    add(store, 1, record_line("param", name="lr", value=0.1), record_line("tag", name="team", value="vision"), *POINTS)
    child = (
        record_line("child", run=ONE, parent=None, name="fold"),
        record_line("metric", run=ONE, name="loss", value=7.0, step=3),
    )
    add(
        store,
        2,
        record_line("param", name="lr", value="0.5"),
        {"n": "loss", "v": 0.9},
        {"n": "words", "v": "hm"},
        *child,
    )
    yield store
    store.close()


def test_runs(history):
    frame = history.runs_dataframe(sort="metrics.loss", children=False)
    assert list(frame["run_id"]) == ["demo-00001", "demo-00002"]
    assert list(frame["params.lr"]) == [0.1, 0.5]
    assert frame["tags.team"][0] == "vision"
    assert list(history.runs_dataframe("params.lr > 0.2", children=False)["metrics.loss"]) == [0.9]
    assert frame.groupby("params.lr")["metrics.loss"].max().to_dict() == {0.1: 0.2, 0.5: 0.9}


def test_no_runs(history):
    frame = history.runs_dataframe("loss > 100")
    assert len(frame) == 0 and "run_id" in frame.columns


def test_metrics(history):
    points = history.metrics("demo-00001")["loss"]
    assert (list(points.steps), list(points.values)) == ([0, 1, 2, 3, 4], [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    frame = history.metrics_dataframe("demo-00001", "loss")
    assert list(frame.columns) == ["name", "step", "time", "value"]
    assert (frame["step"].max(), frame["time"][4].timestamp()) == (4, 104.0)
    assert history.metrics_dataframe("demo-00002")["step"].isna().all()


def test_metrics_of_a_nested_run(history):
    points = history.metrics(f"demo-00002.{'a' * 8}")
    assert {name: list(series.values) for name, series in points.items()} == {"loss": [7.0]}


def test_an_unknown_metric_lists_the_available_ones(history):
    with pytest.raises(UnknownName, match="loss"):
        history.metrics("demo-00002", "losss")


def test_without_pandas_the_error_has_an_install_hint(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError) as error:
        history.runs_dataframe()
    assert "pip install pandas" in str(error.value.hint)
