"""Several sources that report the same metric: one series is shown, and the points are never mixed."""

import itertools
import json

import pytest

from mlworkbench.history.ingest import ingest_bytes
from mlworkbench.history.metric_precedence import shown_names
from mlworkbench.history.rows import ReadPosition, decode, encode
from mlworkbench.history.series.series_store import Series
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.sweep_log import read_last_value

from ..cli.test_follow_view import make_run

OWN, BOARD, PRINTED = "metrics/17-0", "metrics/tensorboard", "metrics/spoken"
FILES = {
    OWN: [("loss", 1.0, 1), ("loss", 2.0, 2), ("own", 9.0, 1)],
    BOARD: [("loss", 10.0, 1), ("loss", 20.0, 2), ("board", 3.0, 1), ("accuracy", 0.5, 1)],
    PRINTED: [("loss", 100.0, 1), ("accuracy", 0.6, 2)],
}
EXPECTED = {
    "loss": [1.0, 2.0],
    "own": [9.0],
    "tensorboard/loss": [10.0, 20.0],
    "board": [3.0],
    "accuracy": [0.5],
    "log/loss": [100.0],
    "log/accuracy": [0.6],
}


def lines(points, time=100.0):
    return [json.dumps({"n": name, "v": value, "t": time + step, "s": step}) + "\n" for name, value, step in points]


@pytest.mark.parametrize("order", list(itertools.permutations(FILES)))
@pytest.mark.parametrize("piecewise", [True, False])
def test_the_summary_does_not_depend_on_the_order_of_files(order, piecewise):
    run, reading = make_run(), ReadPosition()
    for name in order:
        content = lines(FILES[name])
        for part in content if piecewise else ["".join(content)]:
            run, reading = ingest_bytes(run, reading, {name: part.encode()})
            encoded = encode(run, reading, {})
            run = decode(*encoded.body[:2])  # the index keeps the source of each metric
    assert dict(run.metrics) == {name: values[-1] for name, values in EXPECTED.items()}
    assert {name: span.length for name, span in run.spans.items()} == {
        name: len(values) for name, values in EXPECTED.items()
    }
    assert run.metric_sources["tensorboard/loss"] == ["tensorboard", "loss"]


def test_without_the_library_the_plain_names_are_shown():
    run, _ = ingest_bytes(make_run(), ReadPosition(), {BOARD: "".join(lines(FILES[BOARD])).encode()})
    assert dict(run.metrics) == {"loss": 20.0, "board": 3.0, "accuracy": 0.5}


@pytest.mark.parametrize("order", list(itertools.permutations(FILES)))
def test_the_series_of_two_sources_are_not_mixed(tmp_path, order):
    (tmp_path / "metrics").mkdir()
    with Series(RunFolder(str(tmp_path))) as series:
        for name in order:
            with (tmp_path / name).open("a") as file:
                for line in lines(FILES[name]):
                    file.write(line)
                    file.flush()
                    series.catch_up()
        assert {name.name: list(series.points(name.name).values) for name in series.names()} == EXPECTED
        assert {name.name: name.count for name in series.names()} == {
            name: len(values) for name, values in EXPECTED.items()
        }


def test_logged_parameters_take_precedence_over_hyperparameters():
    def parameter(value):
        return (json.dumps({"k": "param", "d": {"name": "lr", "value": value}, "t": 1.0}) + "\n").encode()

    for first, second in ((OWN, BOARD), (BOARD, OWN)):
        content = {OWN: parameter(0.1), BOARD: parameter(0.7)}
        run, reading = ingest_bytes(make_run(), ReadPosition(), {first: content[first]})
        run, _ = ingest_bytes(run, reading, {second: content[second]})
        assert run.params == {"lr": 0.1}


def test_names_that_look_like_a_source_stay_distinct():
    shown = shown_names(["a", "tensorboard/a"], {"tensorboard": ["a", "tensorboard/b", "b"], "spoken": ["b"]})
    assert shown == {
        ("tensorboard", "a"): "tensorboard/tensorboard/a",
        ("tensorboard", "tensorboard/b"): "tensorboard/b",
        ("tensorboard", "b"): "b",
        ("spoken", "b"): "log/b",
    }
    assert shown_names(["b"], {"tensorboard": ["b", "tensorboard/b"]}) == {
        ("tensorboard", "b"): "tensorboard/tensorboard/b",
        ("tensorboard", "tensorboard/b"): "tensorboard/b",
    }


def test_the_progress_of_a_sweep_shows_the_value_of_the_library(tmp_path):
    (tmp_path / "metrics").mkdir()
    for name, time in ((PRINTED, 300.0), (BOARD, 200.0), (OWN, 100.0)):
        (tmp_path / name).write_text("".join(lines(FILES[name], time)))
    folder = RunFolder(str(tmp_path))
    assert (read_last_value(folder, "loss"), read_last_value(folder, "accuracy")) == ("2", "0.5")
