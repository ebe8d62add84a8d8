"""TensorBoard's event files, as tensorboardX 2.6, TensorFlow 2 and Keras 3 wrote them, and as they can be damaged."""

import json
import os
import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlworkbench.history.reading import parse_lines, value_of
from mlworkbench.history.tally import Tally
from mlworkbench.remote.companions.tracking import Tracking
from mlworkbench.remote.tracking import search, tensorboard
from mlworkbench.remote.tracking.eventfile import Broken, _crc32c, _masked, event, records
from mlworkbench.remote.tracking.search import EventFiles
from mlworkbench.remote.tracking.tensorboard import Board

from .test_cli_views import a_run

RECORDED = Path(__file__).parent / "recorded"
THEN = 1794757700.0  # before the recorded files were begun


def tfrecord(data):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", _masked(_crc32c(head))) + data + struct.pack("<I", _masked(_crc32c(data)))


def field(number, data):
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(value):
    value &= (1 << 64) - 1
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def scalars(when, step, **values):
    """One record with these values, as TensorBoard's own writer packs them."""
    summary = b"".join(
        field(1, field(1, name.encode()) + b"\x15" + struct.pack("<f", value)) for name, value in values.items()
    )
    return tfrecord(b"\x09" + struct.pack("<d", when) + b"\x10" + varint(step) + field(5, summary))


BEGIN = tfrecord(b"\x09" + struct.pack("<d", THEN + 1) + field(3, b"brain.Event:2"))


class Looking(Board):
    """Looks for new files each time, as a supervisor does now and then."""

    def look(self, *words, **more):
        self._files.look(now=True)
        return super().look(*words, **more)


class Place:
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
        return Looking(EventFiles(str(self.work)), str(self.target), THEN)

    def lines(self):
        data = self.target.read_bytes() if self.target.exists() else b""
        found = []
        for line in data.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # what a killed writer leaves
        return found

    def points(self):
        return [(line["n"], line["v"], line["s"]) for line in self.lines() if "n" in line]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def read(name):
    data = (RECORDED / name).read_bytes()
    return [(tag, value, step) for _, record in records(data) for tag, value, _, step in event(record)[1]]


def test_what_tensorboardx_wrote():
    found = read("tensorboardX.tfevents.1")
    assert repr(found) == repr(
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


def test_what_tensorflow_wrote():
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
def test_tensors_that_are_one_number(kind, tensor, expected):
    value = field(1, b"tag") + field(8, b"\x08" + varint(kind) + tensor)
    _, found = event(field(5, field(1, value)))
    assert list(found) == ([] if expected is None else [("tag", expected, 0.0, 0)])


def test_live_files_become_metrics_that_readers_at_home_take(place):
    board = place.board()
    board.look()
    assert not place.target.exists()
    path = place.file("logs/events.out.tfevents.1", (RECORDED / "tensorboardX.tfevents.1").read_bytes())
    assert board.look()
    with path.open("ab") as file:
        file.write(scalars(THEN + 50, -1, loss=7.5, other=float("inf")))
    assert board.look()
    assert board.look()
    assert place.points()[-2:] == [("loss", 7.5, -1), ("other", "Infinity", -1)]
    assert len(place.points()) == 12
    lines, used = parse_lines(place.target.read_bytes())
    latest = {line["n"]: value_of(line) for line in lines if "n" in line}
    assert used == place.target.stat().st_size
    assert (latest["loss"], latest["back"], latest["other"]) == (7.5, 4.0, float("inf"))
    assert place.target.stat().st_mode & 0o777 == 0o600


def test_folders_give_their_names_where_that_says_something(place):
    place.file("logs/fit/train/events.out.tfevents.1", (RECORDED / "keras-train.tfevents.1").read_bytes())
    place.file("logs/fit/validation/events.out.tfevents.2", (RECORDED / "keras-validation.tfevents.1").read_bytes())
    place.file("runs/a/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=1))
    place.file("runs/a/events.out.tfevents.2", BEGIN + scalars(THEN + 2, 2, loss=2))
    place.file("runs/b/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=3))
    place.board().finish()
    assert {name for name, _, _ in place.points()} == {
        "train/epoch_loss",
        "train/epoch_learning_rate",
        "validation/epoch_loss",
        "validation/evaluation_loss_vs_iterations",
        "loss",
        "runs/b/loss",
    }
    assert ("train/epoch_loss", 0.96040004, 1) in place.points()
    place.file("runs/c/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=4))
    place.board().finish()  # another supervisor names them alike
    assert [name for name, _, _ in place.points()][-1] == "runs/c/loss"


def test_files_that_came_with_the_code_are_none_of_this_run(place):
    old = tfrecord(b"\x09" + struct.pack("<d", THEN - 100))
    place.file("events.out.tfevents.1", old + scalars(THEN - 99, 1, old=1.0))
    place.file("events.out.tfevents.2", BEGIN + scalars(THEN + 2, 1, new=1.0))
    place.file("notes.txt", BEGIN + scalars(THEN + 2, 1, text=1.0))
    place.board().finish()
    assert place.points() == [("new", 1.0, 1)]


def test_a_file_of_which_any_part_is_written_is_taken_record_by_record(place):
    data = BEGIN + scalars(THEN + 2, 1, a=1.0, b=2.0) + scalars(THEN + 3, 2, a=3.0)
    expected = [("a", 1.0, 1), ("b", 2.0, 1), ("a", 3.0, 2)]
    path = place.file("events.out.tfevents.1", b"")
    board = place.board()
    for end in range(len(data) + 1):
        path.write_bytes(data[:end])
        board.look()
        assert place.points() == expected[: len(place.points())]
    assert place.points() == expected


def test_a_supervisor_killed_at_any_byte_leaves_nothing_out_and_nothing_twice(tmp_path):
    source = BEGIN + scalars(THEN + 2, 1, a=1.0, b=2.0) + scalars(THEN + 3, 2, a=3.0)
    (tmp_path / "whole").mkdir()
    whole = Place(tmp_path / "whole")
    whole.file("x/events.out.tfevents.1", source)
    whole.board().finish()
    written = whole.target.read_bytes()
    for end in range(len(written)):
        folder = tmp_path / str(end)
        folder.mkdir()
        place = Place(folder)
        place.file("x/events.out.tfevents.1", source)
        place.target.parent.mkdir()
        place.target.write_bytes(written[:end])
        place.board().finish()
        assert place.points() == [("a", 1.0, 1), ("b", 2.0, 1), ("a", 3.0, 2)], end


def test_a_disk_that_refuses_is_tried_again(place):
    place.file("events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, a=1.0))
    board = place.board()
    place.target.parent.write_text("in the way")
    assert not board.look()
    place.target.parent.unlink()
    assert board.look()
    assert place.points() == [("a", 1.0, 1)]


def test_a_write_that_breaks_off_is_continued_without_doubles(place, monkeypatch):
    place.file("events.out.tfevents.1", BEGIN + b"".join(scalars(THEN + 2, step, a=0.5, b=1.5) for step in range(50)))
    board, write = place.board(), os.write

    def full(descriptor, data):
        write(descriptor, data[:1500])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert not board.look()
    monkeypatch.setattr(os, "write", write)
    assert board.look()
    assert place.points() == [(name, value, step) for step in range(50) for name, value in (("a", 0.5), ("b", 1.5))]


def test_a_file_that_is_damaged_ends_there_and_the_others_go_on(place):
    good = BEGIN + scalars(THEN + 2, 1, a=1.0)
    place.file("events.out.tfevents.1", good + b"garbage that is no record" + scalars(THEN + 2, 2, a=2.0))
    place.file("events.out.tfevents.2", good + tfrecord(b"\xff\xff\xff") + scalars(THEN + 2, 3, a=3.0))
    place.file("events.out.tfevents.3", b"no event file at all, whatever its name")
    place.file("events.out.tfevents.4", good)
    place.board().finish()
    assert place.points() == [("a", 1.0, 1)] * 3


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_links_and_pipes_are_not_followed(place, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "events.out.tfevents.1").write_bytes(BEGIN + scalars(THEN + 2, 1, a=1.0))
    (place.work / "events.out.tfevents.1").symlink_to(elsewhere / "events.out.tfevents.1")
    (place.work / "folder").symlink_to(elsewhere)
    os.mkfifo(place.work / "events.out.tfevents.2")
    assert place.board().finish()
    assert place.points() == []


@pytest.mark.skipif(os.name == "nt", reason="links")
@pytest.mark.parametrize("folder", ["logs", "logs/deep"])
@pytest.mark.parametrize("began", [True, False])
def test_a_folder_that_becomes_a_link_is_not_followed(place, tmp_path, folder, began):
    """A container cannot see the folder of the host; we could."""
    elsewhere = tmp_path / "elsewhere" / folder[5:]
    elsewhere.mkdir(parents=True)
    secret = BEGIN + scalars(THEN + 2, 1, secret=1.0)
    for name in ("events.out.tfevents.1", "private.tfevents.2"):
        (elsewhere / name).write_bytes(secret)
    own = place.file(f"{folder}/events.out.tfevents.1", BEGIN if began else b"")
    board = place.board()
    board.look()
    assert board._files.found == [f"{folder}/events.out.tfevents.1"]
    (place.work / "logs").rename(place.work / "logs2")
    (place.work / "logs").symlink_to(tmp_path / "elsewhere")
    board.look()
    (place.work / "logs2" / own.relative_to(place.work / "logs")).write_bytes(BEGIN + scalars(THEN + 2, 1, own=1.0))
    assert board.finish()
    assert [name.rpartition("/")[2] for name, _, _ in place.points()] == ["own"]
    assert not [name for name in board._files.found if "private" in name], "nor are names told"


def test_records_of_any_length_are_passed_over_or_read(place, monkeypatch):
    monkeypatch.setattr(tensorboard, "LONGEST", 600_000)
    image = field(5, field(1, field(1, b"image") + field(4, bytes(500_000))))
    long = tfrecord(
        b"\x09" + struct.pack("<d", THEN + 2) + image + field(5, field(1, field(1, b"x") + b"\x15" + bytes(4)))
    )
    longer = tfrecord(field(5, field(1, field(1, b"image") + field(4, bytes(700_000)))))
    place.file("events.out.tfevents.1", BEGIN + long + longer + scalars(THEN + 2, 1, after=1.0))
    place.board().finish()
    assert place.points() == [("x", 0.0, 0), ("after", 1.0, 1)]


def test_a_look_stops_when_its_time_is_over_and_goes_on_next_time(place):
    place.file("events.out.tfevents.1", BEGIN + b"".join(scalars(THEN + 2, step, a=0.5) for step in range(20000)))
    board = place.board()
    looks = 0
    while not board.look(seconds=0):
        looks += 1
    assert looks > 1
    assert [step for _, _, step in place.points()] == list(range(20000))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_bytes_raise_anything_else(data):
    whole = bytearray((RECORDED / "tensorflow.tfevents.1").read_bytes())
    _, record = data.draw(st.sampled_from(list(records(bytes(whole)))))
    record = bytearray(record)
    for _ in range(data.draw(st.integers(1, 6))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    try:
        for tag, value, when, step in event(bytes(record))[1]:
            assert isinstance(tag, str)
            assert isinstance(value, (int, float))
            assert 0 <= when < 1e11
            assert -(2**63) <= step < 2**63
    except Broken:
        pass


def test_the_recorded_files_are_whole():
    for path in RECORDED.glob("*.tfevents.*"):
        data = path.read_bytes()
        last = max(at + 16 + len(record) for at, record in records(data))
        assert last == len(data)


def test_names_that_are_no_text_do_not_begin_again(place):
    if os.name == "nt":
        return
    folder = os.fsencode(place.work) + b"/\xff"
    os.mkdir(folder)
    with open(folder + b"/events.out.tfevents.1", "wb") as file:
        file.write(BEGIN + scalars(THEN + 2, 1, a=1.0))
    for _ in range(2):
        board = place.board()
        board.look()
        board.finish()
    assert place.points() == [("a", 1.0, 1)]
    shutil.rmtree(folder)


def test_new_files_are_found_wherever_they_appear_and_old_folders_are_not_listed_again(place, monkeypatch):
    for name in ("a/b/c", "data/x", ".git/hooks", ".mlflow/0"):
        (place.work / name).mkdir(parents=True)
    (place.work / ".git/events.out.tfevents.1").write_bytes(BEGIN)
    listed, listing = [], search._listing

    def list_by(handle):
        listed.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), place.work))
        return listing(handle)

    monkeypatch.setattr(search, "_listing", list_by)

    def rest():
        """As if all of it had been there for a while."""
        for folder, _, _ in os.walk(place.work):
            os.utime(folder, (THEN, THEN))

    files = EventFiles(str(place.work))
    rest()
    listed.clear()
    assert not files.look()
    assert sorted(listed) == [".", "a", "a/b", "a/b/c", "data", "data/x"]
    listed.clear()
    assert not files.look(now=True)
    assert listed == []
    place.file("a/b/c/events.out.tfevents.1")
    place.file("a/new/deep/events.out.tfevents.2")
    assert not files.look(), "it is too early"
    assert files.look(now=True)
    assert files.found == ["a/b/c/events.out.tfevents.1", "a/new/deep/events.out.tfevents.2"]
    assert sorted(listed) == ["a", "a/b/c", "a/new", "a/new/deep"]
    rest()
    files.look(now=True)
    shutil.rmtree(place.work / "a")
    files.look(now=True)
    place.file("a/b/c/events.out.tfevents.3")
    files.look(now=True)
    assert files.found[2:] == ["a/b/c/events.out.tfevents.3"]


def test_a_folder_that_has_just_changed_is_listed_again(place):
    """Its time is the same after another change within one tick of the clock."""
    files = EventFiles(str(place.work))
    files.look(now=True)
    before = os.stat(place.work)
    place.file("events.out.tfevents.1")
    os.utime(place.work, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.look(now=True)


def test_a_damaged_file_of_ours_is_gone_on_with(place):
    place.file("events.out.tfevents.1", BEGIN + b"".join(scalars(THEN + 2, step, a=0.5) for step in range(9)))
    place.target.parent.mkdir()
    place.target.write_bytes(b"\xff" * 3_000_000 + b'\n{"k": "source", "d": []}\n{"n": 1, "o": [0, 7, 1]}\n{"o": [[]')
    place.board().finish()
    place.board().finish()
    assert [line["s"] for line in place.lines() if "s" in line] == list(range(9))


def test_a_file_in_its_place_that_has_no_end_keeps_nobody_waiting(tmp_path):
    """A script may put anything there; the supervisor has to see a cancel meanwhile."""
    target = tmp_path / "metrics" / "tensorboard"
    target.parent.mkdir()
    with open(target, "wb") as file:
        file.truncate(1 << 40)
    shutil.copy(RECORDED / "tensorboardX.tfevents.1", tmp_path / "events.out.tfevents.1")
    files = EventFiles(str(tmp_path))
    files.look(now=True)
    board = Board(files, str(target), THEN)
    assert not board.finish() and board.refused


def many(count, tag="a"):
    """One record with this many scalars, as small as they can be."""
    value = field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", 1.0))
    return tfrecord(b"\x09" + struct.pack("<d", THEN + 2) + field(5, value * count))


def deep(place, levels, name, data):
    """A file below so many folders with long names: the path may be longer than one system call takes."""
    handle = os.open(place.work, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 250, dir_fd=handle)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
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


def left_out(place):
    """What the run's record says about it: the tags of the run, as every reader shows them."""
    tags = [line["d"] for line in place.lines() if line.get("k") == "tag"]
    return " ".join(tag["value"] for tag in tags if tag["name"] == tensorboard.LEFT_OUT)


@pytest.mark.skipif(os.name == "nt", reason="folders by handle")
def test_the_memory_of_the_reader_follows_the_size_of_a_file_not_of_its_folder(place):
    place.file("first/events.out.tfevents.1", BEGIN)
    data = BEGIN + b"".join(scalars(THEN + 2, step, a=0.5) for step in range(3000))
    deep(place, 15, "events.out.tfevents.2", data)
    board = place.board()
    assert peak_memory(board.finish) < 40 * len(data)
    names = {name for name, _, _ in place.points()}
    assert len(place.points()) == 3000 and len(names) == 1
    assert len(names.pop()) < 300
    assert place.target.stat().st_size < 20 * len(data)


@pytest.mark.skipif(os.name == "nt", reason="folders by handle")
def test_two_long_folders_have_two_short_prefixes(place):
    place.file("first/events.out.tfevents.1", BEGIN)
    for number in range(2):
        long = "/".join(["d" * 250] * 3)
        place.file(f"{number}/{long}/events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, loss=1.0))
    place.board().finish()
    assert len({name for name, _, _ in place.points()}) == 2
    place.board().finish()
    assert len(place.points()) == 2, "the next supervisor goes on with the same names"


def test_names_of_metrics_are_short_and_stay_different(place):
    long = {f"{'x' * 1500}{number}": float(number) for number in range(2)}
    place.file("events.out.tfevents.1", BEGIN + scalars(THEN + 2, 1, **long))
    place.board().finish()
    names = [name for name, _, _ in place.points()]
    assert len(set(names)) == 2
    assert all(len(name) < 600 for name in names)
    assert "shortened" in left_out(place)


def test_a_record_of_many_scalars_is_taken_in_part_and_that_is_recorded(place):
    place.file("events.out.tfevents.1", BEGIN + many(200_000) + scalars(THEN + 3, 7, after=1.0))
    board = place.board()
    assert peak_memory(board.finish) < 30_000_000
    points = place.points()
    assert len(points) == tensorboard.MOST_SCALARS + 1
    assert points[-1] == ("after", 1.0, 7), "the records behind it are read"
    assert f"only the first {tensorboard.MOST_SCALARS} scalars" in left_out(place)
    place.board().finish()
    assert len(place.points()) == len(points), "nothing twice"


def test_a_record_of_many_empty_fields_costs_no_more_than_one_of_scalars(place):
    record = tfrecord(b"\x09" + struct.pack("<d", THEN + 2) + b"\x2a\x00" * 2_000_000)
    place.file("events.out.tfevents.1", BEGIN + record + scalars(THEN + 3, 7, after=1.0))
    assert peak_memory(place.board().finish) < 3 * len(record)
    assert place.points() == [("after", 1.0, 7)]
    assert "fields" in left_out(place)


@pytest.mark.skipif(os.name == "nt", reason="folders by handle")
def test_folders_that_are_too_deep_are_not_searched_and_that_is_recorded(place, monkeypatch):
    deep(place, 20, "events.out.tfevents.2", BEGIN + scalars(THEN + 2, 1, a=1.0))
    tracking = Tracking(type("Run", (), {"work": str(place.work), "metrics": str(place.target.parent)})(), {})
    tracking.tick({"time": THEN})
    tracking.end({"time": THEN})
    assert place.points() == []
    assert "longer than" in left_out(place)


def test_more_event_files_than_are_read_are_recorded(place, monkeypatch):
    monkeypatch.setattr(search, "_MOST_FILES", 3)
    for number in range(5):
        place.file(f"events.out.tfevents.{number}", BEGIN + scalars(THEN + 2, number, a=1.0))
    place.board().finish()
    assert len(place.points()) == 3
    assert "more than 3 event files" in left_out(place)


def test_what_was_not_read_in_time_is_recorded(place):
    place.file("events.out.tfevents.1", BEGIN + b"".join(scalars(THEN + 2, step, a=0.5) for step in range(20000)))
    assert not place.board().finish(seconds=0)
    assert "in time" in left_out(place)


def test_what_was_left_out_is_a_tag_of_the_run(place):
    place.file("events.out.tfevents.1", BEGIN + many(tensorboard.MOST_SCALARS + 1))
    place.board().finish()
    tally = Tally(a_run())
    tally.take(parse_lines(place.target.read_bytes())[0])
    assert "scalars" in tally.run().told_tags[tensorboard.LEFT_OUT]
