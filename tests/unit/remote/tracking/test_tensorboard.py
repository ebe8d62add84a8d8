"""Event files as written by tensorboardX 2.6, TensorFlow 2, and Keras 3, and damaged ones."""

import json
import os
import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlworkbench.history.journal_parsing import parse_metric_lines, point_value
from mlworkbench.history.run_summary import SummaryBuilder
from mlworkbench.remote.companions.external_metrics_monitor import ExternalMetricsMonitor
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.tracking import file_search, summary_recorder, tensorboard
from mlworkbench.remote.tracking.event_file import (
    _crc32c,
    _mask_crc,
    iterate_records,
    parse_scalars,
)
from mlworkbench.remote.tracking.file_search import EVENTS, TrackingFiles
from mlworkbench.remote.tracking.protobuf_wire import InvalidEventFile
from mlworkbench.remote.tracking.tensorboard import TensorBoardReader

from ...cli.test_follow_view import make_run

RECORDED = Path(__file__).parents[2] / "recorded"
THEN = 1794757700.0  # a time before the recorded files were written


def tfrecord(data):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", _mask_crc(_crc32c(head))) + data + struct.pack("<I", _mask_crc(_crc32c(data)))


def field(number, data):
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(value):
    value &= (1 << 64) - 1
    encoded = b""
    while value > 127:
        encoded, value = encoded + bytes([value & 127 | 128]), value >> 7
    return encoded + bytes([value])


def scalars(when, step, **values):
    """Return a record with these values, as TensorBoard's writer packs them."""
    summary = b"".join(
        field(1, field(1, name.encode()) + b"\x15" + struct.pack("<f", value)) for name, value in values.items()
    )
    return tfrecord(b"\x09" + struct.pack("<d", when) + b"\x10" + varint(step) + field(5, summary))


BEGIN = tfrecord(b"\x09" + struct.pack("<d", THEN + 1) + field(3, b"brain.Event:2"))


class SearchingReader(TensorBoardReader):
    """A reader that searches for new files before each poll. A supervisor searches at intervals."""

    def poll(self, *arguments, **options):
        self._files.search(now=True)
        return super().poll(*arguments, **options)


class RunFiles:
    def __init__(self, folder):
        self.work = folder / "work"
        self.work.mkdir()
        self.target = folder / "metrics" / "tensorboard"

    def file(self, name, data=BEGIN):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def board(self):
        return SearchingReader(TrackingFiles(str(self.work)), str(self.target), THEN)

    def lines(self):
        data = self.target.read_bytes() if self.target.exists() else b""
        lines = []
        for line in data.splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue  # incomplete line of a killed writer
        return lines

    def points(self):
        return [(line["n"], line["v"], line["s"]) for line in self.lines() if "n" in line]


@pytest.fixture
def run_files(tmp_path):
    return RunFiles(tmp_path)


def read(name):
    data = (RECORDED / name).read_bytes()
    return [(tag, value, step) for _, record in iterate_records(data) for tag, value, _, step in parse_scalars(record)]


def test_file_of_tensorboardx():
    scalars_read = read("tensorboardX.tfevents.1")
    assert repr(scalars_read) == repr(
        [
            ("loss", 1.0, 0),
            ("loss", 0.5, 1),
            ("loss", 0.33333334, 2),
            ("loss", 0.25, 3),
            ("loss", 0.2, 4),
            ("nan", float("nan"), 7),
            ("inf", float("-inf"), 8),
            ("back", 3.0, 2),
            ("back", 4.0, 1),
            ("größe/µ", 1e-38, 2**40),
        ]
    )


def test_file_of_tensorflow():
    losses = [("loss", value, step) for step, value in enumerate([1.0, 0.5, 0.33333334, 0.25, 0.2])]
    others = [("double", 0.1, 1), ("int", -7.0, 1), ("half", 0.5, 1), ("zero", 0.0, 1)]
    assert read("tensorflow.tfevents.1") == [*losses, *others]


@pytest.mark.parametrize(
    ("kind", "tensor", "expected"),
    [
        (1, field(5, struct.pack("<f", 0.1)), 0.1),
        (1, b"\x2d" + struct.pack("<f", 0.1), 0.1),
        (2, field(6, struct.pack("<d", 0.1)), 0.1),
        (3, field(7, varint(-5)), -5),
        (3, b"\x38" + varint(-5), -5),
        (9, field(10, varint(2**62)), 2**62),
        (9, b"\x22" + varint(8) + struct.pack("<q", -3), -3),
        (19, field(13, varint(0x3800)), 0.5),
        (14, field(13, varint(0x3F80)), 1.0),
        (1, b"", 0.0),
        (9, b"", 0),
        (7, field(8, b"text"), None),
        (1, field(2, field(2, b"\x08\x02")) + field(5, struct.pack("<ff", 1, 2)), None),
        (1, field(4, b"\0"), None),
    ],
)
def test_scalar_tensors(kind, tensor, expected):
    value = field(1, b"tag") + field(8, b"\x08" + varint(kind) + tensor)
    values = parse_scalars(field(5, field(1, value)))
    assert list(values) == ([] if expected is None else [("tag", expected, 0.0, 0)])


def test_growing_files_become_metrics_that_the_client_can_read(run_files):
    board = run_files.board()
    board.poll()
    assert not run_files.target.exists()
    path = run_files.file("logs/events.out.tfevents.1", (RECORDED / "tensorboardX.tfevents.1").read_bytes())
    assert board.poll()
    with path.open("ab") as file:
        file.write(scalars(THEN + 50, -1, loss=7.5, other=float("inf")))
    assert board.poll()
    assert board.poll()
    assert run_files.points()[-2:] == [("loss", 7.5, -1), ("other", "Infinity", -1)]
    assert len(run_files.points()) == 12
    lines, used = parse_metric_lines(run_files.target.read_bytes())
    latest = {line["n"]: point_value(line) for line in lines if "n" in line}
    assert used == run_files.target.stat().st_size
    assert (latest["loss"], latest["back"], latest["other"]) == (7.5, 4.0, float("inf"))
    assert run_files.target.stat().st_mode & 0o777 == 0o600


def test_folder_names_become_prefixes(run_files):
    run_files.file("logs/fit/train/events.out.tfevents.1", (RECORDED / "keras-train.tfevents.1").read_bytes())
    run_files.file("logs/fit/validation/events.out.tfevents.2", (RECORDED / "keras-validation.tfevents.1").read_bytes())
    run_files.file("runs/a/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=1))
    run_files.file("runs/a/events.out.tfevents.2", BEGIN + scalars(THEN + 2, 2, loss=2))
    run_files.file("runs/b/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=3))
    run_files.board().finish()
    assert {name for name, _, _ in run_files.points()} == {
        "train/epoch_loss",
        "train/epoch_learning_rate",
        "validation/epoch_loss",
        "validation/evaluation_loss_vs_iterations",
        "loss",
        "b/loss",
    }
    assert ("train/epoch_loss", 0.96040004, 1) in run_files.points()
    run_files.file("runs/c/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=4))
    run_files.board().finish()  # another supervisor continues with the same metric names
    assert [name for name, _, _ in run_files.points()][-1] == "c/loss"


def test_files_of_the_snapshot_are_ignored(run_files):
    old = tfrecord(b"\x09" + struct.pack("<d", THEN - 100))
    run_files.file("events.out.tfevents.1", old + scalars(THEN - 99, 1, old=1.0))
    run_files.file("events.out.tfevents.2", BEGIN + scalars(THEN + 2, 1, new=1.0))
    run_files.file("notes.txt", BEGIN + scalars(THEN + 2, 1, text=1.0))
    run_files.board().finish()
    assert run_files.points() == [("new", 1.0, 1)]


def test_a_partly_written_file_is_read_record_by_record(run_files):
    data = BEGIN + scalars(THEN + 2, 1, a=1.0, b=2.0) + scalars(THEN + 3, 2, a=3.0)
    expected = [("a", 1.0, 1), ("b", 2.0, 1), ("a", 3.0, 2)]
    path = run_files.file("events.out.tfevents.1", b"")
    board = run_files.board()
    for end in range(len(data) + 1):
        path.write_bytes(data[:end])
        board.poll()
        assert run_files.points() == expected[: len(run_files.points())]
    assert run_files.points() == expected


def test_a_supervisor_killed_at_any_byte_causes_no_loss_and_no_duplicates(tmp_path):
    source = BEGIN + scalars(THEN + 2, 1, a=1.0, b=2.0) + scalars(THEN + 3, 2, a=3.0)
    (tmp_path / "whole").mkdir()
    whole = RunFiles(tmp_path / "whole")
    whole.file("x/events.out.tfevents.1", source)
    whole.board().finish()
    written = whole.target.read_bytes()
    for end in range(len(written)):
        folder = tmp_path / str(end)
        folder.mkdir()
        run_files = RunFiles(folder)
        run_files.file("x/events.out.tfevents.1", source)
        run_files.target.parent.mkdir()
        run_files.target.write_bytes(written[:end])
        run_files.board().finish()
        assert run_files.points() == [("a", 1.0, 1), ("b", 2.0, 1), ("a", 3.0, 2)], end


def test_disk_errors_are_retried(run_files):
    run_files.file("events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, a=1.0))
    board = run_files.board()
    run_files.target.parent.write_text("in the way")
    assert not board.poll()
    run_files.target.parent.unlink()
    assert board.poll()
    assert run_files.points() == [("a", 1.0, 1)]


def test_an_interrupted_write_is_continued_without_duplicates(run_files, monkeypatch):
    run_files.file(
        "events.out.tfevents.1", BEGIN + b"".join(scalars(THEN + 2, step, a=0.5, b=1.5) for step in range(50))
    )
    board, write = run_files.board(), os.write

    def full(descriptor, data):
        write(descriptor, data[:1500])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert not board.poll()
    monkeypatch.setattr(os, "write", write)
    assert board.poll()
    assert run_files.points() == [(name, value, step) for step in range(50) for name, value in (("a", 0.5), ("b", 1.5))]


def test_damage_affects_one_file_only(run_files):
    good = BEGIN + scalars(THEN + 2, 1, a=1.0)
    run_files.file("events.out.tfevents.1", good + b"garbage that is no record" + scalars(THEN + 2, 2, a=2.0))
    run_files.file("events.out.tfevents.2", good + tfrecord(b"\xff\xff\xff") + scalars(THEN + 2, 3, a=3.0))
    run_files.file("events.out.tfevents.3", b"no event file at all, whatever its name")
    run_files.file("events.out.tfevents.4", good)
    run_files.board().finish()
    assert run_files.points() == [("a", 1.0, 1)] * 3


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_links_and_pipes_are_not_followed(run_files, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "events.out.tfevents.1").write_bytes(BEGIN + scalars(THEN + 2, 1, a=1.0))
    (run_files.work / "events.out.tfevents.1").symlink_to(elsewhere / "events.out.tfevents.1")
    (run_files.work / "folder").symlink_to(elsewhere)
    os.mkfifo(run_files.work / "events.out.tfevents.2")
    assert run_files.board().finish()
    assert run_files.points() == []


@pytest.mark.skipif(os.name == "nt", reason="links")
@pytest.mark.parametrize("folder", ["logs", "logs/deep"])
@pytest.mark.parametrize("began", [True, False])
def test_a_folder_that_becomes_a_link_is_not_followed(run_files, tmp_path, folder, began):
    """The link leads to a folder of the host, which only the supervisor can read, not the script's container."""
    elsewhere = tmp_path / "elsewhere" / folder[5:]
    elsewhere.mkdir(parents=True)
    secret = BEGIN + scalars(THEN + 2, 1, secret=1.0)
    for name in ("events.out.tfevents.1", "private.tfevents.2"):
        (elsewhere / name).write_bytes(secret)
    path = run_files.file(f"{folder}/events.out.tfevents.1", BEGIN if began else b"")
    board = run_files.board()
    board.poll()
    assert board._files.found[EVENTS] == [f"{folder}/events.out.tfevents.1"]
    (run_files.work / "logs").rename(run_files.work / "logs2")
    (run_files.work / "logs").symlink_to(tmp_path / "elsewhere")
    board.poll()
    (run_files.work / "logs2" / path.relative_to(run_files.work / "logs")).write_bytes(
        BEGIN + scalars(THEN + 2, 1, own=1.0)
    )
    assert board.finish()
    assert [name.rpartition("/")[2] for name, _, _ in run_files.points()] == ["own"]
    assert not [name for name in board._files.found[EVENTS] if "private" in name], "names are not listed either"


def test_long_records_are_read_or_skipped(run_files, monkeypatch):
    monkeypatch.setattr(tensorboard, "MAX_RECORD", 600_000)
    image = field(5, field(1, field(1, b"image") + field(4, bytes(500_000))))
    long = tfrecord(
        b"\x09" + struct.pack("<d", THEN + 2) + image + field(5, field(1, field(1, b"x") + b"\x15" + bytes(4)))
    )
    longer = tfrecord(field(5, field(1, field(1, b"image") + field(4, bytes(700_000)))))
    run_files.file("events.out.tfevents.1", BEGIN + long + longer + scalars(THEN + 2, 1, after=1.0))
    run_files.board().finish()
    assert run_files.points() == [("x", 0.0, 0), ("after", 1.0, 1)]


def test_a_poll_stops_at_its_deadline_and_the_next_one_continues(run_files):
    run_files.file("events.out.tfevents.1", BEGIN + b"".join(scalars(THEN + 2, step, a=0.5) for step in range(20000)))
    board = run_files.board()
    polls = 0
    while not board.poll(seconds=0):
        polls += 1
    assert polls > 1
    assert [step for _, _, step in run_files.points()] == list(range(20000))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_bytes_raise_only_the_documented_error(data):
    whole = bytearray((RECORDED / "tensorflow.tfevents.1").read_bytes())
    _, record = data.draw(st.sampled_from(list(iterate_records(bytes(whole)))))
    record = bytearray(record)
    for _ in range(data.draw(st.integers(1, 6))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    try:
        for tag, value, when, step in parse_scalars(bytes(record)):
            assert isinstance(tag, str)
            assert isinstance(value, (int, float))
            assert 0 <= when < 1e11
            assert -(2**63) <= step < 2**63
    except InvalidEventFile:
        pass


def test_the_recorded_files_are_complete():
    for path in RECORDED.glob("*.tfevents.*"):
        data = path.read_bytes()
        last = max(at + 16 + len(record) for at, record in iterate_records(data))
        assert last == len(data)


def test_names_that_are_not_utf8_are_read_once(run_files):
    if os.name == "nt":
        return
    folder = os.fsencode(run_files.work) + b"/\xff"
    os.mkdir(folder)
    with open(folder + b"/events.out.tfevents.1", "wb") as file:
        file.write(BEGIN + scalars(THEN + 2, 1, a=1.0))
    for _ in range(2):
        board = run_files.board()
        board.poll()
        board.finish()
    assert run_files.points() == [("a", 1.0, 1)]
    shutil.rmtree(folder)


def test_new_files_are_found_without_listing_unchanged_folders(run_files, monkeypatch):
    for name in ("a/b/c", "data/x", ".git/hooks", ".mlflow/0"):
        (run_files.work / name).mkdir(parents=True)
    (run_files.work / ".git/events.out.tfevents.1").write_bytes(BEGIN)
    listed, listing = [], file_search._list_folder

    def list_by(handle):
        listed.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), run_files.work))
        return listing(handle)

    monkeypatch.setattr(file_search, "_list_folder", list_by)

    def age_folders():
        """Backdate all folders, as if they had not changed for a while."""
        for folder, _, _ in os.walk(run_files.work):
            os.utime(folder, (THEN, THEN))

    files = TrackingFiles(str(run_files.work))
    age_folders()
    listed.clear()
    assert not files.search()
    assert sorted(listed) == [".", "a", "a/b", "a/b/c", "data", "data/x"]
    listed.clear()
    assert not files.search(now=True)
    assert listed == []
    run_files.file("a/b/c/events.out.tfevents.1")
    run_files.file("a/new/deep/events.out.tfevents.2")
    assert not files.search(), "it is too early"
    assert files.search(now=True)
    assert files.found[EVENTS] == ["a/b/c/events.out.tfevents.1", "a/new/deep/events.out.tfevents.2"]
    assert sorted(listed) == ["a", "a/b/c", "a/new", "a/new/deep"]
    age_folders()
    files.search(now=True)
    shutil.rmtree(run_files.work / "a")
    files.search(now=True)
    run_files.file("a/b/c/events.out.tfevents.3")
    files.search(now=True)
    assert files.found[EVENTS][2:] == ["a/b/c/events.out.tfevents.3"]


def test_a_recently_changed_folder_is_listed_again(run_files):
    """A second change within the resolution of the clock leaves the folder's modification time unchanged."""
    files = TrackingFiles(str(run_files.work))
    files.search(now=True)
    before = os.stat(run_files.work)
    run_files.file("events.out.tfevents.1")
    os.utime(run_files.work, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.search(now=True)


def test_a_damaged_metrics_file_is_continued(run_files):
    run_files.file("events.out.tfevents.1", BEGIN + b"".join(scalars(THEN + 2, step, a=0.5) for step in range(9)))
    run_files.target.parent.mkdir()
    run_files.target.write_bytes(
        b"\xff" * 3_000_000 + b'\n{"k": "source", "d": []}\n{"n": 1, "o": [0, 7, 1]}\n{"o": [[]'
    )
    run_files.board().finish()
    run_files.board().finish()
    assert [line["s"] for line in run_files.lines() if "s" in line] == list(range(9))


def test_a_huge_metrics_file_does_not_block_the_supervisor(tmp_path):
    """A script can create any file in the metrics folder. The supervisor must not read a terabyte of it."""
    target = tmp_path / "metrics" / "tensorboard"
    target.parent.mkdir()
    with open(target, "wb") as file:
        file.truncate(1 << 40)
    shutil.copy(RECORDED / "tensorboardX.tfevents.1", tmp_path / "events.out.tfevents.1")
    files = TrackingFiles(str(tmp_path))
    files.search(now=True)
    board = TensorBoardReader(files, str(target), THEN)
    assert not board.finish() and board.disk_failed


def many(count, tag="a"):
    """Return a record with this many minimal scalars."""
    value = field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", 1.0))
    return tfrecord(b"\x09" + struct.pack("<d", THEN + 2) + field(5, value * count))


def deep(run_files, levels, name, data):
    """Create a file below ``levels`` folders with long names; its path can exceed the limit of system calls."""
    handle = os.open(run_files.work, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 250, dir_fd=handle)
        child = os.open("d" * 250, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = child
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=handle)
    os.write(descriptor, data)
    os.close(descriptor)
    os.close(handle)


def peak_memory(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def left_out(run_files):
    """Return the value of the run's tag that lists skipped files."""
    tags = [line["d"] for line in run_files.lines() if line.get("k") == "tag"]
    return " ".join(tag["value"] for tag in tags if tag["name"] == tensorboard.LEFT_OUT)


@pytest.mark.skipif(os.name == "nt", reason="folders by handle")
def test_memory_depends_on_the_file_and_not_on_its_path(run_files):
    run_files.file("first/events.out.tfevents.1", BEGIN)
    data = BEGIN + b"".join(scalars(THEN + 2, step, a=0.5) for step in range(3000))
    deep(run_files, 15, "events.out.tfevents.2", data)
    board = run_files.board()
    assert peak_memory(board.finish) < 40 * len(data)
    names = {name for name, _, _ in run_files.points()}
    assert len(run_files.points()) == 3000 and len(names) == 1
    assert len(names.pop()) < 300
    assert run_files.target.stat().st_size < 20 * len(data)


@pytest.mark.skipif(os.name == "nt", reason="folders by handle")
def test_two_long_folders_have_two_short_prefixes(run_files):
    run_files.file("first/events.out.tfevents.1", BEGIN)
    for number in range(2):
        long = "/".join(["d" * 250] * 3)
        run_files.file(f"{number}/{long}/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=1.0))
    run_files.board().finish()
    assert len({name for name, _, _ in run_files.points()}) == 2
    run_files.board().finish()
    assert len(run_files.points()) == 2, "the next supervisor goes on with the same names"


def test_long_metric_names_are_shortened_and_stay_distinct(run_files):
    long = {f"{'x' * 1500}{number}": float(number) for number in range(2)}
    run_files.file("events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, **long))
    run_files.board().finish()
    names = [name for name, _, _ in run_files.points()]
    assert len(set(names)) == 2
    assert all(len(name) < 600 for name in names)
    assert "shortened" in left_out(run_files)


def test_records_with_too_many_scalars_are_read_partly_and_reported(run_files):
    run_files.file("events.out.tfevents.1", BEGIN + many(200_000) + scalars(THEN + 3, 7, after=1.0))
    board = run_files.board()
    assert peak_memory(board.finish) < 30_000_000
    points = run_files.points()
    assert len(points) == tensorboard.MAX_SCALARS + 1
    assert points[-1] == ("after", 1.0, 7), "the records behind it are read"
    assert f"only the first {tensorboard.MAX_SCALARS} scalars" in left_out(run_files)
    run_files.board().finish()
    assert len(run_files.points()) == len(points), "nothing twice"


def test_records_with_many_empty_fields_are_bounded(run_files):
    record = tfrecord(b"\x09" + struct.pack("<d", THEN + 2) + b"\x2a\x00" * 2_000_000)
    run_files.file("events.out.tfevents.1", BEGIN + record + scalars(THEN + 3, 7, after=1.0))
    assert peak_memory(run_files.board().finish) < 3 * len(record)
    assert run_files.points() == [("after", 1.0, 7)]
    assert "fields" in left_out(run_files)


@pytest.mark.skipif(os.name == "nt", reason="folders by handle")
def test_too_deep_folders_are_skipped_and_reported(run_files, monkeypatch):
    deep(run_files, 20, "events.out.tfevents.2", BEGIN + scalars(THEN + 2, 1, a=1.0))
    tracking = ExternalMetricsMonitor(RunFolder(str(run_files.work.parent)), {})
    tracking.tick({"time": THEN})
    tracking.end({"time": THEN})
    assert run_files.points() == []
    assert "longer than" in left_out(run_files)


def test_too_many_event_files_are_reported(run_files, monkeypatch):
    monkeypatch.setitem(file_search._MAX_FILES, EVENTS, 3)
    for number in range(5):
        run_files.file(f"events.out.tfevents.{number}", BEGIN + scalars(THEN + 2, number, a=1.0))
    run_files.board().finish()
    assert len(run_files.points()) == 3
    assert "more than 3 event files" in left_out(run_files)


def test_a_timeout_is_reported(run_files):
    run_files.file("events.out.tfevents.1", BEGIN + b"".join(scalars(THEN + 2, step, a=0.5) for step in range(20000)))
    assert not run_files.board().finish(seconds=0)
    assert "in time" in left_out(run_files)


def test_skipped_data_is_reported_in_a_tag_of_the_run(run_files):
    run_files.file("events.out.tfevents.1", BEGIN + many(tensorboard.MAX_SCALARS + 1))
    run_files.board().finish()
    summary = SummaryBuilder(make_run())
    summary.take(parse_metric_lines(run_files.target.read_bytes())[0])
    assert "scalars" in summary.run().told_tags[tensorboard.LEFT_OUT]


# -- names, hyperparameters, images, texts, and other data --------------------------------------------------


def names(run_files):
    return [name for name, _, _ in run_files.points()]


@pytest.mark.parametrize(
    "folder",
    [
        "runs/Nov16_07-53-15_vm",
        "runs/Nov16_07-53-15_vmLR_0.1_BATCH_16",
        "hf_out/runs/Nov16_07-53-15_vm/1763279595.0336998",
        "lightning_logs/version_0",
        "logs/fit/20261116-075315",
        "outputs/2026-11-16/07-53-15/tb",
        "logs/events",
        "test/runs/Nov16_07-53-15_vm",
        "runs/0f8fad5b-d9cb-469f-a165-70867728950e",
    ],
)
def test_run_specific_folders_are_not_part_of_names(run_files, folder):
    data = BEGIN + scalars(THEN + 2, 1, loss=1)
    run_files.file(f"{folder}/events.out.tfevents.1", data)
    run_files.file(f"{folder}/train/events.out.tfevents.1", data)
    run_files.file(f"{folder}/loss_best/events.out.tfevents.1", data)
    run_files.board().finish()
    assert sorted(names(run_files)) == ["loss", "loss_best/loss", "train/loss"]


def test_streams_with_the_same_tag_stay_distinct_without_run_specific_names(run_files):
    for number, folder in enumerate(["Nov16_07-53-15_vm", "Nov16_07-59-02_vm", "Dec01_10-00-00_vm"]):
        begin = tfrecord(b"\x09" + struct.pack("<d", THEN + 1 + number) + field(3, b"brain.Event:2"))
        run_files.file(f"runs/{folder}/events.out.tfevents.1", begin + scalars(THEN + 9, 1, loss=number))
        run_files.file(f"runs/{folder}/train/events.out.tfevents.1", begin + scalars(THEN + 9, 1, loss=10 + number))
    run_files.board().finish()
    expected = [
        ("loss", 0.0),
        ("run_3/loss", 1.0),
        ("run_5/loss", 2.0),
        ("train/loss", 10.0),
        ("run_4/train/loss", 11.0),
        ("run_6/train/loss", 12.0),
    ]
    assert sorted((value, name) for name, value, _ in run_files.points()) == sorted(
        (value, name) for name, value in expected
    ), "the writer that was created first keeps the plain name"


def test_the_next_supervisor_continues_with_the_same_names(run_files):
    first = run_files.file("runs/a/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=1, a=1))
    second = run_files.file("runs/b/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=2, b=2))
    run_files.board().finish()
    assert sorted(names(run_files)) == ["a", "b", "b/loss", "loss"]
    first.unlink()  # the files are found in another order
    with second.open("ab") as file:
        file.write(scalars(THEN + 3, 2, loss=3, a=3))
    run_files.board().finish()
    assert run_files.points()[4:] == [("b/loss", 3.0, 2), ("b/a", 3.0, 2)]


def records(run_files, kind):
    return [line["d"] for line in run_files.lines() if line.get("k") == kind]


def tag_value(run_files, name):
    return next((tag["value"] for tag in reversed(records(run_files, "tag")) if tag["name"] == name), None)


def test_hyperparameters_become_parameters(run_files):
    run_files.file("runs/Nov16_07-53-15_vm/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, accuracy=0.5))
    recorded = (RECORDED / "tensorboardX-hparams.tfevents.1").read_bytes()
    run_files.file("runs/Nov16_07-53-15_vm/1795014375.0336998/events.out.tfevents.1", recorded)
    run_files.board().finish()
    assert {record["name"]: record["value"] for record in records(run_files, "param")} == {
        "lr": 0.1,
        "bsize": 16,
        "opt": "adam",
        "amp": True,
    }
    assert sorted(names(run_files)) == ["accuracy", "hparam/accuracy"]
    run_files.file("runs/Nov16_07-53-15_vm/1795014376.1/events.out.tfevents.1", recorded)
    run_files.board().finish()
    assert names(run_files)[-1] == "run_3/hparam/accuracy", "a second session is distinct"
    assert {record["name"] for record in records(run_files, "param")[4:]} == {
        "run_3/lr",
        "run_3/bsize",
        "run_3/opt",
        "run_3/amp",
    }


def hparams(**values):
    """Return a record of Keras' hp API, with values encoded as protobuf's ``Value``."""
    entries = b"".join(field(1, field(1, name.encode()) + field(2, value)) for name, value in values.items())
    content = field(3, entries)
    metadata = field(1, field(1, b"hparams") + field(2, content))
    value = field(1, b"_hparams_/session_start_info") + field(9, metadata)
    return tfrecord(b"\x09" + struct.pack("<d", THEN + 2) + field(5, field(1, value)))


def test_values_of_hyperparameters(run_files):
    double = struct.Struct("<d").pack
    record = hparams(
        units=b"\x11" + double(16),
        nan=b"\x11" + double(float("nan")),
        no=b"\x20\0",
        none=b"\x08\0",
        text=field(3, b"x"),
    )
    run_files.file("logs/events.out.tfevents.1", BEGIN + record)
    run_files.board().finish()
    lines, _ = parse_metric_lines(run_files.target.read_bytes())
    summary = SummaryBuilder(make_run())
    summary.take(lines)
    assert repr(summary.run().params) == repr(
        {"units": 16, "nan": float("nan"), "no": False, "none": "None", "text": "x"}
    )


def test_images_and_texts_become_outputs_and_other_data_is_kept(run_files):
    recorded = (RECORDED / "tensorboardX-summaries.tfevents.1").read_bytes()
    name = "runs/Nov16_07-53-15_vm/events.out.tfevents.1"
    run_files.file(name, recorded)
    run_files.board().finish()
    outputs = run_files.work / "outputs"
    assert (outputs / "images/samples/first-2.png").read_bytes().startswith(b"\x89PNG")
    assert (outputs / "text/note-3.txt").read_text() == "hello **world**"
    assert (outputs / "tensorboard" / name).read_bytes() == recorded
    files = [(record["path"], record["as"], record["name"]) for record in records(run_files, "file")]
    assert files == [
        ("images/samples/first-2.png", "image", "samples/first"),
        ("text/note-3.txt", "text", "note"),
        (f"tensorboard/{name}", "tensorboard", name),
        ("tensorboard/histograms/weights.json", "table", "histograms/weights"),
        ("tensorboard/pr_curves/pr.json", "table", "pr_curves/pr"),
    ]
    assert tag_value(run_files, "tensorboard.kept") == "histograms: weights; pr curves: pr"
    assert names(run_files) == ["loss"]
    before = sorted(outputs.rglob("*"))
    run_files.board().finish()
    assert names(run_files) == ["loss"], "the copy is not read"
    run_files.target.unlink()
    run_files.board().finish()  # after a crash that lost the position
    assert sorted(outputs.rglob("*")) == before, "nothing twice"
    assert names(run_files) == ["loss"]


def test_event_files_in_outputs_are_not_copied(run_files):
    recorded = (RECORDED / "tensorboardX-summaries.tfevents.1").read_bytes()
    run_files.file("outputs/tb/events.out.tfevents.1", recorded)
    run_files.file("logs/events.out.tfevents.2", BEGIN + scalars(THEN + 2, 1, loss=1))
    run_files.board().finish()
    assert [record["path"] for record in records(run_files, "file") if record["as"] == "tensorboard"] == [
        "tb/events.out.tfevents.1"
    ]
    assert not list((run_files.work / "outputs/tensorboard").rglob("events*")), "files with scalars only are not copied"


def strings(plugin, tag, *values):
    """Return a record with a tensor of strings, as TensorFlow 2 writes images and text."""
    tensor = b"\x08\x07" + field(2, field(2, b"\x08" + varint(len(values)))) + b"".join(field(8, one) for one in values)
    value = field(1, tag) + field(8, tensor) + field(9, field(1, field(1, plugin)))
    return tfrecord(b"\x09" + struct.pack("<d", THEN + 2) + b"\x10\x05" + field(5, field(1, value)))


PNG, GIF = b"\x89PNG\r\n\x1a\n1", b"GIF89a2"


def test_images_and_text_of_tensorflow(run_files):
    data = strings(b"images", b"x", b"5", b"4", PNG, GIF, PNG + b"3") + strings(b"text", b"t", b"a", "ö".encode())
    run_files.file("logs/train/events.out.tfevents.1", BEGIN + data)
    run_files.board().finish()
    files = {path.name: path.read_bytes() for path in (run_files.work / "outputs").rglob("*-5*")}
    assert files == {"x-5.png": PNG, "x-5.gif": GIF, "x-5-2.png": PNG + b"3", "t-5.txt": "a\nö".encode()}
    assert (run_files.work / "outputs/images/train/x-5.png").exists()


def test_the_number_of_images_is_limited_and_the_rest_is_kept(run_files, monkeypatch):
    monkeypatch.setattr(summary_recorder, "MAX_FILES", 3)
    data = b"".join(strings(b"images", b"x%d" % number, b"5", b"4", PNG) for number in range(5))
    path = run_files.file("logs/events.out.tfevents.1", BEGIN + data)
    run_files.board().poll()
    with path.open("ab") as file:
        file.write(strings(b"images", b"x9", b"5", b"4", PNG))
    run_files.board().finish()  # another supervisor has the same limit
    assert len(list((run_files.work / "outputs/images").iterdir())) == 3
    assert tag_value(run_files, "tensorboard.kept") == "images: x3, x4, x9"
    assert "at most 3 images" in left_out(run_files)
    assert (run_files.work / "outputs/tensorboard/logs/events.out.tfevents.1").exists()


def test_the_size_of_copied_event_files_is_limited(run_files, monkeypatch):
    recorded = (RECORDED / "tensorboardX-summaries.tfevents.1").read_bytes()
    monkeypatch.setattr(summary_recorder, "MAX_EVENT_BYTES", len(recorded) + 1)
    for name in ("a", "b"):
        run_files.file(f"{name}/events.out.tfevents.1", recorded)
    run_files.board().finish()
    assert [path.parent.name for path in (run_files.work / "outputs/tensorboard").rglob("events*")] == ["a"]
    assert "event files are copied" in left_out(run_files)


@pytest.mark.skipif(os.name == "nt", reason="links")
@pytest.mark.parametrize("link", ["outputs", "outputs/images", "outputs/text", "outputs/tensorboard"])
def test_nothing_is_written_through_links(run_files, tmp_path, link):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run_files.work / link).parent.mkdir(exist_ok=True)
    (run_files.work / link).symlink_to(elsewhere)
    run_files.file("runs/a/events.out.tfevents.1", (RECORDED / "tensorboardX-summaries.tfevents.1").read_bytes())
    assert run_files.board().finish()
    assert list(elsewhere.iterdir()) == []
    assert "could not be stored in outputs" in left_out(run_files)
    assert names(run_files) == ["loss"]


@pytest.mark.parametrize(
    "tag", ["../../x", "/etc/x", "a/../b", "x" * 400, "ü" * 200, "\0", "a/b/c/d/e/f/g/h/i/j", "..", ""]
)
def test_names_of_images_stay_inside_outputs(run_files, tag):
    run_files.file("logs/events.out.tfevents.1", BEGIN + strings(b"images", tag.encode(), b"5", b"4", PNG))
    run_files.board().finish()
    images = [path for path in (run_files.work / "outputs").rglob("*") if path.is_file()]
    assert len(images) == 1 and ".." not in images[0].relative_to(run_files.work).parts
    assert records(run_files, "file")[0]["path"] == str(images[0].relative_to(run_files.work / "outputs"))


def test_an_image_that_is_no_image_is_only_kept(run_files):
    run_files.file("logs/events.out.tfevents.1", BEGIN + strings(b"images", b"x", b"5", b"4", b"<svg onload=x>"))
    run_files.board().finish()
    assert [path.name for path in (run_files.work / "outputs").rglob("*") if path.is_file()] == [
        "events.out.tfevents.1"
    ]
    assert tag_value(run_files, "tensorboard.kept") == "images: x"
