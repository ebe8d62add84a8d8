"""Metrics from ``key: value`` lines in a script's log."""

import json

import pytest

from mlworkbench.remote.tracking.printed_metrics import PrintedMetricsReader, parse_line


@pytest.mark.parametrize(
    ("line", "pairs", "step"),
    [
        ("accuracy: 0.93", [("accuracy", 0.93)], None),
        ("  loss = -1.5e-3  ", [("loss", -0.0015)], None),
        ("validation loss: .5", [("validation loss", 0.5)], None),
        ("loss=0.5, lr=1e-3", [("loss", 0.5), ("lr", 0.001)], None),
        ("loss: 0.5 acc: 93%", [("loss", 0.5), ("acc", 93.0)], None),
        ("loss: 0.5 | acc: 0.9 | inf: inf", [("loss", 0.5), ("acc", 0.9), ("inf", float("inf"))], None),
        ("step: 7, loss: 0.5", [("loss", 0.5)], 7),
        ("epoch=3 loss=0.5", [("loss", 0.5)], 3),
        ("Epoch 3/10 - loss: 0.5 - acc: 0.9", [("loss", 0.5), ("acc", 0.9)], 3),
        ("Epoch [3/10], loss: 0.5", [("loss", 0.5)], 3),
        ("[step 12] loss: 0.5", [("loss", 0.5)], 12),
        ("epoch: 3", [("epoch", 3.0)], None),
        ("1/1 - 1s - 1s/step - loss: 1.0000 - val_loss: 0.9604", [("loss", 1.0), ("val_loss", 0.9604)], None),
        ("10/10 - 0s - loss: 0.5", [("loss", 0.5)], None),
        (
            "32/32 [==============================] - 0s 2ms/step - loss: 0.6931 - accuracy: 0.5",
            [("loss", 0.6931), ("accuracy", 0.5)],
            None,
        ),
        ("half done\r\x1b[32mloss: 0.25\x1b[0m", [("loss", 0.25)], None),
    ],
)
def test_lines_with_metrics(line, pairs, step):
    assert parse_line(line) == (pairs, step)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "Traceback (most recent call last):",
        "the loss was 0.5 today: fine",
        "loss: 0.5 and more words",
        "2026-11-15 12:30:05 started",
        "http://host:8080/",
        "loss: 0.5.1",
        "loss: 0x10",
        "version: 1.2.3",
        "key: value",
        "{'loss': 0.5}",
        "x" * 2000 + ": 1",
        ": 5",
    ],
)
def test_lines_without_metrics(line):
    assert parse_line(line) is None


def points(path):
    lines = [json.loads(line) for line in path.read_bytes().splitlines() if line]
    return [(line["n"], line["v"], line.get("s")) for line in lines if "n" in line]


def test_a_growing_log_is_continued_by_the_next_supervisor(tmp_path):
    log, target = tmp_path / "log", tmp_path / "metrics" / "spoken"
    reader = PrintedMetricsReader(str(log), str(target))
    assert reader.poll()
    text = b"begin\n10%\rloss: 1, acc: 0.5\nnot this: line\n\xff\nloss: 2\nloss: 3"
    for end in range(len(text) + 1):
        log.write_bytes(text[:end])
        assert reader.poll()
    assert points(target) == [("loss", 1.0, None), ("acc", 0.5, None), ("loss", 2.0, None)]
    log.write_bytes(text + b"\nepoch: 9 loss: nan\n")
    assert PrintedMetricsReader(str(log), str(target)).finish()
    assert points(target)[3:] == [("loss", 3.0, None), ("loss", "NaN", 9)]


def test_a_very_long_line_is_skipped(tmp_path):
    log, target = tmp_path / "log", tmp_path / "metrics" / "spoken"
    log.write_bytes(b"." * 600_000 + b"\nloss: 1\n")
    assert PrintedMetricsReader(str(log), str(target)).finish()
    assert points(target) == [("loss", 1.0, None)]
