"""Outputs into a folder: names, links, interruption, content that is not what it should be, size."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.errors import HistoryError, UnknownName, UsageError
from mlworkbench.remote.outputs import each_output
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.shared.tree import points_inside
from mlworkbench.runfiles import content
from mlworkbench.runfiles import transfer as module
from mlworkbench.runfiles.beneath import Beneath, refusal, remove_at
from mlworkbench.runfiles.download import download
from mlworkbench.runfiles.manifest import Output, read_outputs
from mlworkbench.runfiles.stage import MARK


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.outputs)
    return folder


def record(run, extra=()):
    with open(run.manifest, "w") as file:
        json.dump({"outputs": [*each_output(run.outputs, lambda: False), *extra]}, file)


def put(run, path, data=b"x"):
    place = os.path.join(run.outputs, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "wb") as file:
        file.write(data)
    return place


def everything(folder):
    return {
        os.path.relpath(os.path.join(place, name), folder): Path(place, name).read_bytes()
        for place, _, names in os.walk(folder)
        for name in names
    }


NAMES = [
    "a",
    "deep/er/b",
    "CON",
    "a:b",
    "-rf",
    "trailing. ",
    "..\\..\\x",
    "%2e%2e%2f",
    "n" * 255,
    "é",
    "e\u0301",
    "\u202e",
]


def test_odd_names_survive(run, tmp_path):
    names = [*NAMES, os.fsdecode(b"odd\xff\nname")]
    for number, name in enumerate(names):
        put(run, name, b"%d" % number)
    record(run)
    outcome, recorded = download(run, str(tmp_path / "got"))
    assert (outcome.copied, outcome.failed, recorded) == (len(names), [], True)
    assert everything(tmp_path / "got") == {name: b"%d" % number for number, name in enumerate(names)}


HOSTILE = ["../x", "/etc/x", "a/../../x", "a/./x", "a//x", "", ".", "..", "a/..", "x\0y", "../run10/x"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused_and_named(run, tmp_path, name):
    put(run, "good")
    digest = hashlib.sha256(b"x").hexdigest()
    record(run, [{"path": name, "size": 1, "sha256": digest, "kind": "file"}])
    outcome, _ = download(run, str(tmp_path / "deep" / "got"))
    assert outcome.copied == 1 and [path for path, _ in outcome.failed] == [name] and not outcome.whole
    assert everything(tmp_path / "deep") == {"got/good": b"x"}


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b", "\0", "\\"]), min_size=1, max_size=6).map("/".join))
def test_an_accepted_name_stays_inside(name):
    if refusal(name) is None:
        assert os.path.normpath("/root/" + name) == "/root/" + name


@pytest.mark.parametrize(
    ("path", "to", "inside"),
    [
        ("in", "a", True),
        ("d/in", "../a", True),
        ("d/in", "./e/f", True),
        ("in", "..", False),
        ("d/in", "../..", False),
        ("in", "/etc/passwd", False),
        ("in", "", False),
        # Through another link, which leads to the folder itself: the step up leaves it.
        ("in", "d/loop/../x", False),
    ],
)
def test_links_are_made_only_inside(path, to, inside):
    assert points_inside(path, to) is inside


def test_links_and_special_files(run, tmp_path):
    put(run, "d/a")
    os.symlink("d/a", os.path.join(run.outputs, "in"))
    os.symlink("/etc/passwd", os.path.join(run.outputs, "out"))
    os.mkfifo(os.path.join(run.outputs, "fifo"))
    record(run)
    outcome, _ = download(run, str(tmp_path / "got"))
    assert sorted(os.listdir(tmp_path / "got")) == ["d", "in"]
    assert os.readlink(tmp_path / "got" / "in") == "d/a"
    assert dict(outcome.skipped) == {"out": "link to /etc/passwd, which is outside the outputs", "fifo": "fifo"}
    assert outcome.whole


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_there_is_not_followed_nor_overwritten(run, tmp_path, overwrite):
    for name in ("link", "file", "folder", "way/in"):
        put(run, name, b"new")
    record(run)
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    got = tmp_path / "got"
    (got / "folder").mkdir(parents=True)
    (got / "link").symlink_to(victim)
    (got / "file").write_text("old")
    (tmp_path / "elsewhere").mkdir()
    (got / "way").symlink_to(tmp_path / "elsewhere")
    outcome, _ = download(run, str(got), overwrite=overwrite)
    assert victim.read_text() == "mine" and not list((tmp_path / "elsewhere").iterdir())
    assert outcome.failed == [("way/in", "blocked by an existing link or file")]
    assert sorted(outcome.exists) == (["folder"] if overwrite else ["file", "folder", "link"])
    assert (got / "link").is_symlink() is not overwrite
    assert (got / "file").read_text() == ("new" if overwrite else "old")
    assert not list(got.glob(".mlw-*")), "no part stays"


def test_a_conflict_is_seen_before_the_copying(run, tmp_path):
    put(run, "a", b"x" * 1000)
    record(run)
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "a").write_text("mine")
    outcome, _ = download(run, str(tmp_path / "got"))
    assert (outcome.exists, outcome.size) == (["a"], 0)


def test_outputs_that_are_a_link_are_not_followed(run, tmp_path):
    put(run, "a")
    record(run)
    os.rename(run.outputs, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", run.outputs)
    with pytest.raises(HistoryError, match="cannot use"):
        download(run, str(tmp_path / "got"))


def test_repeated_it_does_nothing(run, tmp_path):
    put(run, "a", b"1" * 100)
    record(run)
    download(run, str(tmp_path / "got"))
    before = os.stat(tmp_path / "got" / "a")
    outcome, _ = download(run, str(tmp_path / "got"), overwrite=True)
    assert (outcome.copied, outcome.same) == (0, 1)
    assert os.stat(tmp_path / "got" / "a").st_ino == before.st_ino


@pytest.fixture(params=["new", "old"])
def got(request, tmp_path):
    """A destination: one that does not exist yet, and one that does."""
    place = tmp_path / "got"
    if request.param == "old":
        place.mkdir()
    return place


def interrupted(run, got, monkeypatch, after):
    """A download that is cut in the middle of its file; the answer is what it left of the file."""
    real = content.write_at

    def write(target, data, at):
        if at >= after:
            raise KeyboardInterrupt
        real(target, data, at)

    monkeypatch.setattr(content, "write_at", write)
    monkeypatch.setattr(module, "clone", lambda source, target: False)
    new = not got.exists()
    with pytest.raises(KeyboardInterrupt):
        download(run, str(got))
    monkeypatch.setattr(content, "write_at", real)
    if new:
        assert not got.exists(), "it appears when it is whole"
        return next(got.parent.glob("got.mlw-*.part")) / "files" / "big"
    part = next(got.glob(".mlw-*.part"))
    assert {path.name for path in got.iterdir()} == {MARK, part.name}, "nothing under the file's own name"
    return part


def test_goes_on_where_it_stopped(run, got, monkeypatch):
    data = os.urandom(5 << 20)
    put(run, "big", data)
    record(run)
    interrupted(run, got, monkeypatch, 3 << 20)
    written = []
    real = content.write_at
    monkeypatch.setattr(content, "write_at", lambda target, data, at: (written.append(at), real(target, data, at)))
    outcome, _ = download(run, str(got))
    assert outcome.copied == 1 and min(written) == 3 << 20
    assert everything(got.parent / "got") == {"big": data}
    assert sorted(os.listdir(got.parent)) == ["got", "run"], "no leftovers"


def test_a_wrong_part_is_found_out(run, got, monkeypatch):
    """A power cut may leave zeros where data was."""
    data = os.urandom(3 << 20)
    put(run, "big", data)
    record(run)
    part = interrupted(run, got, monkeypatch, 2 << 20)
    with open(part, "r+b") as file:
        file.write(bytes(1000))
    outcome, _ = download(run, str(got))
    assert outcome.whole and everything(got) == {"big": data}


def test_a_part_that_is_a_link_is_not_written_through(run, got, monkeypatch):
    put(run, "big", os.urandom(3 << 20))
    record(run)
    part = interrupted(run, got, monkeypatch, 2 << 20)
    part.unlink()
    victim = got.parent / "victim"
    victim.write_text("mine")
    part.symlink_to(victim)
    outcome, _ = download(run, str(got))
    assert victim.read_text() == "mine" and not outcome.whole


def test_two_at_once(run, got, monkeypatch):
    put(run, "big", os.urandom(3 << 20))
    record(run)
    part = interrupted(run, got, monkeypatch, 2 << 20)
    held = got / MARK if got.exists() else part.parent.parent
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(HistoryError, match="another command is downloading to"):
        download(run, str(got))
    os.close(descriptor)
    assert download(run, str(got))[0].copied == 1


def test_another_selection_does_not_bring_what_was_begun(run, tmp_path, monkeypatch):
    put(run, "big", os.urandom(3 << 20))
    put(run, "small")
    record(run)
    interrupted(run, tmp_path / "got", monkeypatch, 2 << 20)
    download(run, str(tmp_path / "got"), ["small"])
    assert everything(tmp_path / "got") == {"small": b"x"}


def test_a_folder_made_meanwhile_gets_its_files_one_by_one(run, tmp_path, monkeypatch):
    put(run, "big", os.urandom(3 << 20))
    record(run)
    interrupted(run, tmp_path / "got", monkeypatch, 2 << 20)
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "mine").write_text("mine")
    assert download(run, str(tmp_path / "got"))[0].copied == 1
    assert sorted(os.listdir(tmp_path / "got")) == ["big", "mine"]
    assert sorted(os.listdir(tmp_path)) == ["got", "run"], "what was begun beside it is gone"


def test_a_stage_of_somebody_else_is_not_used(run, tmp_path, monkeypatch):
    """In a folder for all, such as /tmp, another user can guess its name."""
    put(run, "big", os.urandom(3 << 20))
    record(run)
    part = interrupted(run, tmp_path / "got", monkeypatch, 2 << 20)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(part).st_uid + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        download(run, str(tmp_path / "got"))
    assert not (tmp_path / "got").exists()


def test_changed_content_is_not_delivered(run, tmp_path):
    put(run, "a", b"1")
    put(run, "gone")
    put(run, "fifo")
    put(run, "good", b"g")
    record(run)
    put(run, "a", b"2")
    for name in ("gone", "fifo"):
        os.unlink(os.path.join(run.outputs, name))
    os.mkfifo(os.path.join(run.outputs, "fifo"))
    outcome, _ = download(run, str(tmp_path / "got"))
    assert dict(outcome.failed)["a"] == "content differs from what was recorded when the run ended"
    assert {path for path, _ in outcome.failed} == {"a", "gone", "fifo"}
    assert everything(tmp_path / "got") == {"good": b"g"}


def test_a_source_folder_swapped_for_a_link(run, tmp_path):
    """X06: what the target put in the place of a folder is not read."""
    put(run, "d/passwd", b"mine")
    record(run)
    secret = tmp_path / "etc"
    secret.mkdir()
    (secret / "passwd").write_bytes(b"mine")
    os.rename(os.path.join(run.outputs, "d"), os.path.join(run.outputs, "away"))
    os.symlink(secret, os.path.join(run.outputs, "d"))
    outcome, _ = download(run, str(tmp_path / "got"))
    assert outcome.copied == 0 and [path for path, _ in outcome.failed] == ["d/passwd"]


def test_sparse_stays_sparse_and_modes_are_plain(run, tmp_path):
    place = put(run, "hole")
    os.truncate(place, 64 << 20)
    os.chmod(place, 0o4755)
    record(run)
    download(run, str(tmp_path / "got"))
    found = os.stat(tmp_path / "got" / "hole")
    assert found.st_size == 64 << 20 and found.st_blocks * 512 <= 1 << 20
    assert stat.S_IMODE(found.st_mode) == 0o755 & ~umask()


def test_small_data_in_large_holes(run, tmp_path):
    """A byte here and there must not become a megabyte here and there."""
    place = put(run, "hole")
    with open(place, "r+b") as file:
        for megabyte in range(0, 64, 2):
            file.seek((megabyte << 20) + 5000)
            file.write(b"data")
    os.truncate(place, 64 << 20)
    record(run)
    assert download(run, str(tmp_path / "got"))[0].whole
    found = os.stat(tmp_path / "got" / "hole")
    assert found.st_blocks <= 2 * os.stat(place).st_blocks
    assert (tmp_path / "got" / "hole").read_bytes() == Path(place).read_bytes()


def umask():
    now = os.umask(0)
    os.umask(now)
    return now


def test_before_the_end_of_the_run(run, tmp_path):
    put(run, "checkpoint", b"so far")
    outcome, recorded = download(run, str(tmp_path / "got"))
    assert (everything(tmp_path / "got"), outcome.whole, recorded) == ({"checkpoint": b"so far"}, True, False)


def test_a_file_that_is_being_written(run, tmp_path, monkeypatch):
    """F78: no digest on record, and the file does not hold still."""
    place = put(run, "log", b"x" * 100)
    real = module.copy

    def copy(source, target, size, count):
        with open(place, "ab") as file:
            file.write(b"more")
        return real(source, target, size, count)

    monkeypatch.setattr(module, "copy", copy)
    outcome, _ = download(run, str(tmp_path / "got"))
    assert outcome.failed == [("log", "changed while copying")]
    assert everything(tmp_path / "got") == {}


def test_some_of_them(run, tmp_path):
    for name in ("model.pkl", "plots/a.png", "plots/b.png", "plots2/c.png"):
        put(run, name)
    record(run)
    download(run, str(tmp_path / "got"), ["plots/", "outputs/model.pkl"])
    assert set(everything(tmp_path / "got")) == {"model.pkl", "plots/a.png", "plots/b.png"}
    with pytest.raises(UnknownName, match=r"unknown output 'plot'; available: model.pkl"):
        download(run, str(tmp_path / "other"), ["plot"])
    assert not (tmp_path / "other").exists(), "nothing is made for a mistake"
    for bad in ("../x", "/etc/passwd"):
        with pytest.raises(UsageError):
            download(run, str(tmp_path / "other"), [bad])


def test_full_disk_says_how_to_go_on(run, tmp_path, monkeypatch):
    put(run, "a")
    record(run)

    def full(target, data, at):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_at", full)
    with pytest.raises(HistoryError, match="is full") as told:
        download(run, str(tmp_path / "got"))
    assert "continues where it stopped" in (told.value.hint or "")


def test_the_list_is_read_in_pieces(tmp_path):
    """10⁵ entries in little memory, cut anywhere."""
    path = tmp_path / "outputs.json"
    digest = "a" * 64
    with open(path, "w") as file:
        file.write('{"outputs": [')
        for number in range(100_000):
            one = {"path": f"d{number % 100}/f{number}", "size": number, "sha256": digest, "kind": "file"}
            file.write((", " if number else "") + json.dumps(one))
        file.write("]}")
    tracemalloc.start()
    total = sum(one.size for one in read_outputs(str(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == sum(range(100_000))
    assert peak < 4_000_000


@pytest.mark.parametrize(
    "text", ["", "[]", '{"outputs": [{"path": "a"', '{"outputs": [{"path": 1}]}', '{"outputs": [7]}']
)
def test_a_damaged_list_is_told(tmp_path, text):
    path = tmp_path / "outputs.json"
    path.write_text(text)
    with pytest.raises(HistoryError):
        list(read_outputs(str(path)))


def test_memory_does_not_grow_with_the_file(run, tmp_path):
    os.truncate(put(run, "large"), 256 << 20)
    record(run)
    tracemalloc.start()
    download(run, str(tmp_path / "got"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_swapper_never_gets_us_out(run, tmp_path):
    """X06: a folder at the download place is swapped for a link again and again."""
    for number in range(300):
        put(run, f"d/{number}")
    record(run)
    outside, got = tmp_path / "outside", tmp_path / "got"
    outside.mkdir()
    got.mkdir()
    done = threading.Event()

    def swap():
        while not done.is_set():
            try:
                os.rename(got / "d", got / "was")
                os.symlink(outside, got / "d")
                os.unlink(got / "d")
                os.rename(got / "was", got / "d")
            except OSError:
                continue

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        download(run, str(got))
    finally:
        done.set()
        swapper.join()
    assert list(outside.iterdir()) == []


def test_removal_does_not_follow_links(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    (tmp_path / "gone" / "deep").mkdir(parents=True)
    (tmp_path / "gone" / "deep" / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with Beneath(str(tmp_path)) as folders:
        for name in ("gone", "link", "never was"):
            remove_at(folders.open(""), name)
    assert sorted(os.listdir(tmp_path)) == ["mine"] and (tmp_path / "mine" / "precious").exists()


def test_many_notes_are_counted_and_not_kept(run, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_NAMED", 3)
    for number in range(8):
        os.symlink("/etc/passwd", os.path.join(run.outputs, f"link{number}"))
    record(run)
    outcome, _ = download(run, str(tmp_path / "got"))
    assert (len(outcome.skipped), outcome.skipped.total) == (3, 8)


def test_kinds_that_count_as_files():
    assert [Output("a", 1, None, kind).is_file for kind in ("file", "not hashed", "link", "fifo")] == [
        True,
        True,
        False,
        False,
    ]
