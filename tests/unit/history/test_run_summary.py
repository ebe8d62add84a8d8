"""The summary of what a script recorded."""

from __future__ import annotations

from itertools import permutations

import pytest

from mlworkbench.history.run_summary import SummaryBuilder
from tests.unit.cli.test_follow_view import make_run

EARLY, LATE = 1000.0, 2000.0


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(3, LATE, 0.3), (1, EARLY, 0.1), (2, EARLY, 0.2)], 0.3),
        ([(9, EARLY, 0.9), (1, LATE, 0.1)], 0.9),  # an evaluation of an earlier step that is logged late
        ([(5, EARLY, 0.1), (5, LATE, 0.2)], 0.2),
        ([(None, EARLY, 0.1), (None, LATE, 0.2)], 0.2),
        ([(7, EARLY, 0.1), (None, LATE, 0.2)], 0.2),
    ],
    ids=["in order", "step before time", "same step", "no steps", "one step"],
)
def test_last_value_follows_the_step_then_the_time(points, expected):
    for order in permutations(points):
        summary = SummaryBuilder(make_run())
        summary.take([{"n": "acc", "v": value, "t": when, "s": step} for step, when, value in order])
        assert summary.run().metrics["acc"] == expected


def test_appending_to_a_table_keeps_its_kind():
    """MLflow's log_table logs the file again for each call, as a file without a name."""
    table, again = {"path": "a.json", "name": "a.json", "as": "table"}, {"path": "a.json", "as": "file"}
    summary = SummaryBuilder(make_run())
    summary.take([{"k": "file", "d": data} for data in (again, table, again, {"path": "b", "as": "file"})])
    assert summary.run().files == {"a.json": {"as": "table", "name": "a.json"}, "b": {"as": "file"}}
