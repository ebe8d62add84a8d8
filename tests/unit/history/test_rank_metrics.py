"""Metrics of several ranks: the source of a file, and the names that are shown."""

from __future__ import annotations

import json

import pytest

from mlworkbench.history.ingest import ingest_bytes
from mlworkbench.history.metric_precedence import shown_names
from mlworkbench.history.rows import ReadPosition
from mlworkbench.model import Run
from mlworkbench.remote.shared.metric_limits import is_metric_file, source_of
from tests.unit.test_plan import PARTS, plan

FILES = {
    "4711-0123456789abcdef": "",
    "4711-0123456789abcdef.rank2": "rank 2",
    "4711-0.rank12345": "rank 12345",
    "tensorboard": "tensorboard",
    # Names that only a script can write.
    "4711-0.rank0": "",
    "4711-0.rank": "",
    "4711-0.rank01": "",
    "4711-0.rank123456": "",
    "4711-0.rankx": "",
}


@pytest.mark.parametrize("name", FILES)
def test_source_of_a_file(name):
    assert is_metric_file(name)
    assert source_of(name) == FILES[name]


def test_rank_0_and_then_lower_ranks_take_precedence():
    names = {"rank 10": ["loss", "a"], "rank 2": ["loss", "a", "b"], "tensorboard": ["a", "c"]}
    assert shown_names(["loss"], names) == {
        ("rank 2", "b"): "b",
        ("tensorboard", "a"): "a",
        ("tensorboard", "c"): "c",
    }


def line(**data):
    return json.dumps(data).encode() + b"\n"


def test_the_order_of_files_does_not_matter():
    """Whether rank 1 or rank 0 is read first, in one step or several, rank 0 is shown."""
    other = line(n="loss", v=11.0, t=2.0, s=1) + line(k="param", d={"name": "lr", "value": 2}, t=1.0)
    first = line(n="loss", v=1.0, t=1.0, s=0) + line(k="param", d={"name": "lr", "value": 1}, t=1.0)
    parts = {"metrics/2-b.rank1": other, "metrics/1-a": first}
    for names in (["metrics/2-b.rank1", "metrics/1-a"], ["metrics/1-a", "metrics/2-b.rank1"]):
        run, position = Run(plan(PARTS, "run-1", "k", 0)), ReadPosition()
        for name in names:
            run, position = ingest_bytes(run, position, {name: parts[name]})
        assert (run.metrics, run.params) == ({"loss": 1.0}, {"lr": 1})
