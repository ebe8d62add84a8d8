"""Attempts that repeat steps: views contain the point of the newest attempt, and the metrics files all points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench.history.series.attempt_steps import attempt_starts
from mlworkbench.history.series.series_store import NO_STEP, Name, Series
from mlworkbench.model import Run
from tests.unit.history.series.metric_folders import MetricFolder
from tests.unit.test_plan import PARTS, plan

STARTS = (100_000.0, 200_000.0)  # of the second and the third attempt


@pytest.fixture
def place(tmp_path: Path) -> MetricFolder:
    return MetricFolder(tmp_path)


def log_steps(place: MetricFolder, attempt: int, steps: range, **more: str) -> None:
    """Log the number of the attempt at each step."""
    lines = [f'{{"n": "loss", "v": {attempt}, "t": {attempt * 100_000 + step}.5, "s": {step}}}\n' for step in steps]
    place.append("".join(lines).encode(), **more)


@pytest.mark.parametrize("files", [("3-a", "2-b", "1-c"), ("1-a", "2-b", "3-c"), ("tensorboard",) * 3])
def test_later_attempts_replace_the_steps_that_they_repeat(place, files):
    for attempt, steps in enumerate((range(3000), range(2500, 4000), range(3900, 5000))):
        log_steps(place, attempt, steps, file=files[attempt])
    expected = [0] * 2500 + [1] * 1400 + [2] * 1100
    with Series(place.folder, STARTS) as series:
        points = series.points("loss")
        assert (list(points.steps), list(points.values)) == (list(range(5000)), expected)
        assert series.names() == [Name("loss", "number", 5000)]
        assert [column.last for column in series.downsample("loss", 5000)] == expected
        assert [column.hi for column in series.downsample("loss", 5, span=(2500, 3899))] == [1] * 5
    with place.read() as series:  # of a run without retries
        assert series.names() == [Name("loss", "number", 5600)]
        assert series.value_range("loss") == (0, 2)


def test_values_that_are_not_replaced(place):
    place.log({"n": "loss", "v": 9.0, "t": 1.0, "s": 1}, {"n": "loss", "v": 5.0, "t": 1.0})
    place.log({"n": "loss", "v": 1.0, "t": 100_001.0, "s": 1}, {"n": "loss", "v": 2.0, "t": 100_002.0, "s": 1})
    place.log({"n": "note", "v": "old", "t": 1.0, "s": 1}, {"n": "note", "v": "kept", "t": 2.0}, file="2-b")
    place.log({"n": "note", "v": "new", "t": 100_001.0, "s": 1}, {"n": "note", "v": "last", "t": 100_002.0, "s": 2})
    with Series(place.folder, STARTS) as series:
        assert list(series.points("loss").values) == [5.0, 1.0, 2.0], "within an attempt, a step may repeat"
        assert series.value_range("loss") == (1.0, 5.0)
        assert [value.value for value in series.values("note")] == ["kept", "new", "last"]
        assert [value.value for value in series.values("note", newest=2)] == ["new", "last"]
        assert series.names() == [Name("loss", "number", 3), Name("note", "value", 3)]


def newest_points(points: list[tuple[int | None, int]]) -> list[tuple[int | None, int]]:
    """Return what remains of points (step, attempt), computed point by point."""
    newest = {step: max(attempt for other, attempt in points if other == step) for step, _ in points}
    return [(step, attempt) for step, attempt in points if step is None or newest[step] == attempt]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.none() | st.integers(-3, 3), st.integers(0, 2)), max_size=12))
def test_any_order_of_points(tmp_path_factory, points):
    place = MetricFolder(tmp_path_factory.mktemp("run"))
    for at, (step, attempt) in enumerate(points):
        point = {"n": "a", "v": attempt, "t": attempt * 100_000.0 + at}
        place.log(point if step is None else {**point, "s": step}, file=f"{at % 3}-a")
    with Series(place.folder, STARTS) as series:
        left = series.points("a")
        steps = [None if step == NO_STEP else step for step in left.steps]
        key = str  # None cannot be compared with a number
        assert sorted(zip(steps, left.values, strict=True), key=key) == sorted(
            ((step, float(attempt)) for step, attempt in newest_points(points)), key=key
        )


def test_starts_of_attempts():
    run = Run(plan(PARTS, "run-1", "k", 0), started=300.0)
    assert attempt_starts(run) == []
    retried = replace(run, attempts=({"started": 100.0}, {"started": None}, {"started": 200.0}))
    assert attempt_starts(retried) == [200.0, 300.0]
    assert attempt_starts(replace(retried, started=None)) == [200.0], "the next attempt is waiting"
