"""Histograms and precision-recall curves, as tensorboardX 2.6 and TensorFlow 2 write them, and damaged ones."""

import json
import struct

import pytest

from mlworkbench.remote.tracking import plot_tables
from mlworkbench.remote.tracking.distribution import BUCKETS, parse_histogram, parse_pr_curve
from mlworkbench.remote.tracking.protobuf_wire import InvalidEventFile, TooManyFields

from .test_tensorboard import BEGIN, RECORDED, THEN, RunFiles, field, left_out, tfrecord, varint


@pytest.fixture
def run_files(tmp_path):
    return RunFiles(tmp_path)


def doubles(*values):
    return struct.pack(f"<{len(values)}d", *values)


def proto(limits, counts, low, high, total=0.0):
    """Return a ``HistogramProto``."""
    facts = b"".join(bytes([number << 3 | 1]) + doubles(value) for number, value in ((1, low), (2, high), (4, total)))
    return facts + b"\x19" + doubles(sum(counts)) + field(6, doubles(*limits)) + field(7, doubles(*counts))


def histogram(step, data, tag=b"weights"):
    value = field(1, tag) + field(5, data)
    return tfrecord(b"\x09" + struct.pack("<d", THEN + 2) + b"\x10" + varint(step) + field(5, field(1, value)))


def table(run_files, name):
    return json.loads((run_files.work / "outputs/tensorboard" / name).read_text())


@pytest.mark.parametrize(
    ("recorded", "name", "expected"),
    [
        ("tensorboardX-summaries", "weights", {"step": 1, "count": 3, "mean": 2, "min": 1, "max": 3}),
        ("tensorboardX", "hist", {"step": 1, "count": 10, "mean": 4.5, "min": 0, "max": 9}),
        ("tensorflow", "h", {"step": 1, "count": 2, "mean": 1.5, "min": 1, "max": 2}),
    ],
)
def test_recorded_histograms(run_files, recorded, name, expected):
    data = (RECORDED / f"{recorded}.tfevents.1").read_bytes()
    run_files.file("logs/events.out.tfevents.1", data)
    run_files.board().finish()
    content = table(run_files, f"histograms/{name}.json")
    row = dict(zip(content["columns"], content["data"][0], strict=True))
    assert {key: row[key] for key in expected} == expected
    assert row["min"] <= row["p5"] <= row["p25"] <= row["p50"] <= row["p75"] <= row["p95"] <= row["max"]
    (buckets,) = content["buckets"]
    assert len(buckets) == BUCKETS and sum(buckets) == pytest.approx(row["count"], rel=1e-4)


def test_a_recorded_pr_curve_ends_at_the_last_threshold_with_predictions(run_files):
    run_files.file("logs/events.out.tfevents.1", (RECORDED / "tensorboardX-summaries.tfevents.1").read_bytes())
    run_files.board().finish()
    content = table(run_files, "pr_curves/pr.json")
    assert content["columns"] == ["step", "threshold", "recall", "precision"]
    assert content["data"][0] == [1, 0, 1, 0.666667]
    assert content["data"][-1] == [1, 0.896825, 0.5, 1]
    recalls = [row[2] for row in content["data"]]
    assert recalls == sorted(recalls, reverse=True) and len(recalls) <= 101


def test_limits_outside_of_the_values_are_clipped():
    result = parse_histogram(memoryview(proto([-1e300, 0.0, 0.5, 1.7e308], [0, 0, 3, 1], 0.25, 2.25, total=3.0)))
    assert (result.count, result.low, result.high, result.mean) == (4, 0.25, 2.25, 0.75)
    assert sum(result.buckets[:8]) == pytest.approx(3, rel=0.05)
    assert result.quantiles[-1] <= 2.25


def test_a_histogram_of_one_value():
    result = parse_histogram(memoryview(proto([5.0], [7], 5.0, 5.0, total=35.0)))
    assert (result.quantiles, list(result.buckets)) == ([5.0] * 5, [7])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        proto([1.0], [1, 2], 0.0, 1.0),
        proto([1.0], [0], 0.0, 1.0),
        proto([1.0], [1], 1.0, 0.0),
        proto([1.0], [1], float("nan"), 1.0),
        proto([1.0], [1], float("-inf"), 1.0),
        proto([1.0], [float("inf")], 0.0, 1.0),
    ],
)
def test_histograms_without_usable_values(data):
    assert parse_histogram(memoryview(data)) is None


def test_curves_of_another_shape():
    def curve(rows, size, *values):
        shape = b"".join(field(2, b"\x08" + varint(count)) for count in (rows, size))
        return memoryview(b"\x08\x01" + field(2, shape) + field(5, struct.pack(f"<{len(values)}f", *values)))

    assert list(parse_pr_curve(curve(6, 2, 2, 1, 2, 0, 0, 2, 0, 1, 0.5, 1, 1, 0.5))) == [0, 1, 0.5, 1, 0.5, 1]
    assert parse_pr_curve(curve(6, 2, *[1.0] * 11)) is None
    assert parse_pr_curve(curve(5, 2, *[1.0] * 10)) is None
    assert parse_pr_curve(curve(6, 2, *[float("nan")] * 12)) is None
    assert parse_pr_curve(curve(6, 1 << 40, *[1.0] * 12)) is None


def test_long_series_keep_evenly_chosen_steps_and_the_last(run_files):
    records = [histogram(step, proto([1.0, 2.0], [step + 1, 1], 0.0, 2.0)) for step in range(1000)]
    run_files.file("logs/events.out.tfevents.1", BEGIN + b"".join(records))
    run_files.board().finish()
    content = table(run_files, "histograms/weights.json")
    steps = [row[0] for row in content["data"]]
    assert 50 <= len(steps) <= 100 and (steps[0], steps[-1]) == (0, 999)
    assert {second - first for first, second in zip(steps[:-1], steps[1:-1], strict=False)} == {16}
    assert len(content["buckets"]) == len(steps)
    assert len(json.dumps(content)) < 100_000


def test_the_number_of_tables_is_limited_and_named(run_files, monkeypatch):
    monkeypatch.setattr(plot_tables, "MAX_TABLES", 2)
    data = b"".join(histogram(1, proto([1.0], [1], 0.0, 1.0), b"w%d" % number) for number in range(4))
    run_files.file("logs/events.out.tfevents.1", BEGIN + data)
    run_files.board().finish()
    assert len(list((run_files.work / "outputs/tensorboard/histograms").iterdir())) == 2
    assert "at most 2 histograms and PR curves" in left_out(run_files)


def test_reading_stops_in_time(run_files, monkeypatch):
    monkeypatch.setattr(plot_tables, "_SECONDS", -1.0)
    run_files.file("logs/events.out.tfevents.1", BEGIN + histogram(1, proto([1.0], [1], 0.0, 1.0)))
    run_files.board().finish()
    assert not (run_files.work / "outputs/tensorboard/histograms").exists()
    assert "could be read in time" in left_out(run_files)


def test_records_longer_than_a_chunk_are_read(run_files, monkeypatch):
    monkeypatch.setattr(plot_tables, "_CHUNK", 64)
    data = histogram(1, proto([1.0], [1], 0.0, 1.0)) + histogram(2, proto([1.0], [2], 0.0, 1.0))
    run_files.file("logs/events.out.tfevents.1", BEGIN + data)
    run_files.board().finish()
    assert [row[:2] for row in table(run_files, "histograms/weights.json")["data"]] == [[1, 1], [2, 2]]


@pytest.mark.parametrize("tag", [b"../../x", b"/etc/x", b"x" * 400, b"\0", b""])
def test_names_of_tables_stay_inside_outputs(run_files, tag):
    run_files.file("logs/events.out.tfevents.1", BEGIN + histogram(1, proto([1.0], [1], 0.0, 1.0), tag))
    run_files.board().finish()
    (path,) = (run_files.work / "outputs").rglob("*.json")
    assert ".." not in path.relative_to(run_files.work).parts


def test_damaged_histograms_raise_only_the_documented_errors():
    whole = proto([1.0, 2.0], [1, 1], 0.0, 2.0)
    for position in range(len(whole)):
        for value in (0, 0x7F, 0x80, 0xFF):
            data = whole[:position] + bytes([value]) + whole[position + 1 :]
            try:
                result = parse_histogram(memoryview(data))
            except (InvalidEventFile, TooManyFields):
                continue
            assert result is None or len(result.buckets) in (1, BUCKETS)
