"""Downloading outputs: names, links, interruptions, wrong content, and sizes."""

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
from mlworkbench.remote.output_scan import iterate_outputs
from mlworkbench.remote.shared.folder_tree import points_inside
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.runfiles import file_content
from mlworkbench.runfiles import verified_copy as module
from mlworkbench.runfiles.output_download import download
from mlworkbench.runfiles.output_manifest import Output, read_outputs
from mlworkbench.runfiles.safe_paths import SafeFolders, path_problem, remove_at
from mlworkbench.runfiles.staging import MARK


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.outputs)
    return folder


def write_manifest(run, extra=()):
    with open(run.manifest, "w") as file:
        json.dump({"outputs": [*iterate_outputs(run.outputs, lambda: False), *extra]}, file)


def write_output(run, path, data=b"x"):
    target = os.path.join(run.outputs, path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(data)
    return target


def read_tree(folder):
    return {
        os.path.relpath(os.path.join(parent, name), folder): Path(parent, name).read_bytes()
        for parent, _, names in os.walk(folder)
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
        write_output(run, name, b"%d" % number)
    write_manifest(run)
    outcome, recorded = download(run, str(tmp_path / "got"))
    assert (outcome.copied, outcome.failed, recorded) == (len(names), [], True)
    assert read_tree(tmp_path / "got") == {name: b"%d" % number for number, name in enumerate(names)}


HOSTILE = ["../x", "/etc/x", "a/../../x", "a/./x", "a//x", "", ".", "..", "a/..", "x\0y", "../run10/x"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused_and_reported(run, tmp_path, name):
    write_output(run, "good")
    digest = hashlib.sha256(b"x").hexdigest()
    write_manifest(run, [{"path": name, "size": 1, "sha256": digest, "kind": "file"}])
    outcome, _ = download(run, str(tmp_path / "deep" / "got"))
    assert outcome.copied == 1 and [path for path, _ in outcome.failed] == [name] and not outcome.is_complete
    assert read_tree(tmp_path / "deep") == {"got/good": b"x"}


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b", "\0", "\\"]), min_size=1, max_size=6).map("/".join))
def test_an_accepted_name_stays_inside(name):
    if path_problem(name) is None:
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
        # If d/loop is a link, ".." after it may lead outside.
        ("in", "d/loop/../x", False),
    ],
)
def test_links_are_created_only_inside(path, to, inside):
    assert points_inside(path, to) is inside


def test_links_and_special_files(run, tmp_path):
    write_output(run, "d/a")
    os.symlink("d/a", os.path.join(run.outputs, "in"))
    os.symlink("/etc/passwd", os.path.join(run.outputs, "out"))
    os.mkfifo(os.path.join(run.outputs, "fifo"))
    write_manifest(run)
    outcome, _ = download(run, str(tmp_path / "got"))
    assert sorted(os.listdir(tmp_path / "got")) == ["d", "in"]
    assert os.readlink(tmp_path / "got" / "in") == "d/a"
    assert dict(outcome.skipped) == {"out": "link to /etc/passwd, which is outside the outputs", "fifo": "fifo"}
    assert outcome.is_complete


@pytest.mark.parametrize("overwrite", [False, True])
def test_existing_files_are_neither_followed_nor_overwritten(run, tmp_path, overwrite):
    for name in ("link", "file", "folder", "way/in"):
        write_output(run, name, b"new")
    write_manifest(run)
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


def test_a_conflict_is_detected_before_copying(run, tmp_path):
    write_output(run, "a", b"x" * 1000)
    write_manifest(run)
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "a").write_text("mine")
    outcome, _ = download(run, str(tmp_path / "got"))
    assert (outcome.exists, outcome.size) == (["a"], 0)


def test_outputs_that_are_a_link_are_not_followed(run, tmp_path):
    write_output(run, "a")
    write_manifest(run)
    os.rename(run.outputs, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", run.outputs)
    with pytest.raises(HistoryError, match="cannot use"):
        download(run, str(tmp_path / "got"))


def test_a_repeated_download_copies_nothing(run, tmp_path):
    write_output(run, "a", b"1" * 100)
    write_manifest(run)
    download(run, str(tmp_path / "got"))
    before = os.stat(tmp_path / "got" / "a")
    outcome, _ = download(run, str(tmp_path / "got"), overwrite=True)
    assert (outcome.copied, outcome.same) == (0, 1)
    assert os.stat(tmp_path / "got" / "a").st_ino == before.st_ino


@pytest.fixture(params=["new", "old"])
def got(request, tmp_path):
    """A destination folder: one that does not exist yet, and one that exists."""
    place = tmp_path / "got"
    if request.param == "old":
        place.mkdir()
    return place


def interrupt_download(run, got, monkeypatch, after):
    """Interrupt a download in the middle of its file, and return the path of the partial file."""
    real = file_content.write_at

    def write(target, data, at):
        if at >= after:
            raise KeyboardInterrupt
        real(target, data, at)

    monkeypatch.setattr(file_content, "write_at", write)
    monkeypatch.setattr(module, "clone", lambda source, target: False)
    new = not got.exists()
    with pytest.raises(KeyboardInterrupt):
        download(run, str(got))
    monkeypatch.setattr(file_content, "write_at", real)
    if new:
        assert not got.exists(), "it appears when it is whole"
        return next(got.parent.glob("got.mlw-*.part")) / "files" / "big"
    part = next(got.glob(".mlw-*.part"))
    assert {path.name for path in got.iterdir()} == {MARK, part.name}, "nothing under the file's own name"
    return part


def test_a_download_resumes(run, got, monkeypatch):
    data = os.urandom(5 << 20)
    write_output(run, "big", data)
    write_manifest(run)
    interrupt_download(run, got, monkeypatch, 3 << 20)
    written = []
    real = file_content.write_at
    monkeypatch.setattr(file_content, "write_at", lambda target, data, at: (written.append(at), real(target, data, at)))
    outcome, _ = download(run, str(got))
    assert outcome.copied == 1 and min(written) == 3 << 20
    assert read_tree(got.parent / "got") == {"big": data}
    assert sorted(os.listdir(got.parent)) == ["got", "run"], "no leftovers"


def test_a_wrong_part_is_detected(run, got, monkeypatch):
    """After a power failure, a partial file may contain zeros instead of data."""
    data = os.urandom(3 << 20)
    write_output(run, "big", data)
    write_manifest(run)
    part = interrupt_download(run, got, monkeypatch, 2 << 20)
    with open(part, "r+b") as file:
        file.write(bytes(1000))
    outcome, _ = download(run, str(got))
    assert outcome.is_complete and read_tree(got) == {"big": data}


def test_a_part_that_is_a_link_is_not_written_through(run, got, monkeypatch):
    write_output(run, "big", os.urandom(3 << 20))
    write_manifest(run)
    part = interrupt_download(run, got, monkeypatch, 2 << 20)
    part.unlink()
    victim = got.parent / "victim"
    victim.write_text("mine")
    part.symlink_to(victim)
    outcome, _ = download(run, str(got))
    assert victim.read_text() == "mine" and not outcome.is_complete


def test_concurrent_downloads_are_refused(run, got, monkeypatch):
    write_output(run, "big", os.urandom(3 << 20))
    write_manifest(run)
    part = interrupt_download(run, got, monkeypatch, 2 << 20)
    held = got / MARK if got.exists() else part.parent.parent
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(HistoryError, match="another command is downloading to"):
        download(run, str(got))
    os.close(descriptor)
    assert download(run, str(got))[0].copied == 1


def test_another_selection_ignores_a_partial_download(run, tmp_path, monkeypatch):
    write_output(run, "big", os.urandom(3 << 20))
    write_output(run, "small")
    write_manifest(run)
    interrupt_download(run, tmp_path / "got", monkeypatch, 2 << 20)
    download(run, str(tmp_path / "got"), ["small"])
    assert read_tree(tmp_path / "got") == {"small": b"x"}


def test_a_folder_created_meanwhile_gets_its_files_one_by_one(run, tmp_path, monkeypatch):
    write_output(run, "big", os.urandom(3 << 20))
    write_manifest(run)
    interrupt_download(run, tmp_path / "got", monkeypatch, 2 << 20)
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "mine").write_text("mine")
    assert download(run, str(tmp_path / "got"))[0].copied == 1
    assert sorted(os.listdir(tmp_path / "got")) == ["big", "mine"]
    assert sorted(os.listdir(tmp_path)) == ["got", "run"], "what was begun beside it is gone"


def test_a_staging_folder_of_another_user_is_not_used(run, tmp_path, monkeypatch):
    """In a shared folder such as /tmp, another user could create it first, because its name can be guessed."""
    write_output(run, "big", os.urandom(3 << 20))
    write_manifest(run)
    part = interrupt_download(run, tmp_path / "got", monkeypatch, 2 << 20)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(part).st_uid + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        download(run, str(tmp_path / "got"))
    assert not (tmp_path / "got").exists()


def test_changed_content_is_not_delivered(run, tmp_path):
    write_output(run, "a", b"1")
    write_output(run, "gone")
    write_output(run, "fifo")
    write_output(run, "good", b"g")
    write_manifest(run)
    write_output(run, "a", b"2")
    for name in ("gone", "fifo"):
        os.unlink(os.path.join(run.outputs, name))
    os.mkfifo(os.path.join(run.outputs, "fifo"))
    outcome, _ = download(run, str(tmp_path / "got"))
    assert dict(outcome.failed)["a"] == "content differs from what was recorded when the run ended"
    assert {path for path, _ in outcome.failed} == {"a", "gone", "fifo"}
    assert read_tree(tmp_path / "got") == {"good": b"g"}


def test_a_source_folder_swapped_for_a_link(run, tmp_path):
    """After the outputs were listed, a folder is replaced with a link. The files behind the link are not read."""
    write_output(run, "d/passwd", b"mine")
    write_manifest(run)
    secret = tmp_path / "etc"
    secret.mkdir()
    (secret / "passwd").write_bytes(b"mine")
    os.rename(os.path.join(run.outputs, "d"), os.path.join(run.outputs, "away"))
    os.symlink(secret, os.path.join(run.outputs, "d"))
    outcome, _ = download(run, str(tmp_path / "got"))
    assert outcome.copied == 0 and [path for path, _ in outcome.failed] == ["d/passwd"]


def test_files_stay_sparse_and_modes_are_simplified(run, tmp_path):
    path = write_output(run, "hole")
    os.truncate(path, 64 << 20)
    os.chmod(path, 0o4755)
    write_manifest(run)
    download(run, str(tmp_path / "got"))
    status = os.stat(tmp_path / "got" / "hole")
    assert status.st_size == 64 << 20 and status.st_blocks * 512 <= 1 << 20
    assert stat.S_IMODE(status.st_mode) == 0o755 & ~umask()


def test_small_data_in_large_holes(run, tmp_path):
    """A few bytes in a hole must not take a whole megabyte on disk."""
    path = write_output(run, "hole")
    with open(path, "r+b") as file:
        for megabyte in range(0, 64, 2):
            file.seek((megabyte << 20) + 5000)
            file.write(b"data")
    os.truncate(path, 64 << 20)
    write_manifest(run)
    assert download(run, str(tmp_path / "got"))[0].is_complete
    status = os.stat(tmp_path / "got" / "hole")
    assert status.st_blocks <= 2 * os.stat(path).st_blocks
    assert (tmp_path / "got" / "hole").read_bytes() == Path(path).read_bytes()


def umask():
    current = os.umask(0)
    os.umask(current)
    return current


def test_before_the_end_of_the_run(run, tmp_path):
    write_output(run, "checkpoint", b"so far")
    outcome, recorded = download(run, str(tmp_path / "got"))
    assert (read_tree(tmp_path / "got"), outcome.is_complete, recorded) == ({"checkpoint": b"so far"}, True, False)


def test_a_file_that_is_being_written(run, tmp_path, monkeypatch):
    """The file has no recorded digest and changes during the download."""
    path = write_output(run, "log", b"x" * 100)
    real = module.copy

    def copy(source, target, size, count):
        with open(path, "ab") as file:
            file.write(b"more")
        return real(source, target, size, count)

    monkeypatch.setattr(module, "copy", copy)
    outcome, _ = download(run, str(tmp_path / "got"))
    assert outcome.failed == [("log", "changed while copying")]
    assert read_tree(tmp_path / "got") == {}


def test_selected_outputs(run, tmp_path):
    for name in ("model.pkl", "plots/a.png", "plots/b.png", "plots2/c.png"):
        write_output(run, name)
    write_manifest(run)
    download(run, str(tmp_path / "got"), ["plots/", "outputs/model.pkl"])
    assert set(read_tree(tmp_path / "got")) == {"model.pkl", "plots/a.png", "plots/b.png"}
    with pytest.raises(UnknownName, match=r"unknown output 'plot'; available: model.pkl"):
        download(run, str(tmp_path / "other"), ["plot"])
    assert not (tmp_path / "other").exists(), "nothing is made for a mistake"
    for bad in ("../x", "/etc/passwd"):
        with pytest.raises(UsageError):
            download(run, str(tmp_path / "other"), [bad])


def test_a_full_disk_gives_a_hint(run, tmp_path, monkeypatch):
    write_output(run, "a")
    write_manifest(run)

    def full(target, data, at):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_at", full)
    with pytest.raises(HistoryError, match="is full") as error:
        download(run, str(tmp_path / "got"))
    assert "continues where it stopped" in (error.value.hint or "")


def test_the_list_is_read_in_chunks(tmp_path):
    """100,000 entries are read with constant memory, wherever the chunks split them."""
    path = tmp_path / "outputs.json"
    digest = "a" * 64
    with open(path, "w") as file:
        file.write('{"outputs": [')
        for number in range(100_000):
            entry = {"path": f"d{number % 100}/f{number}", "size": number, "sha256": digest, "kind": "file"}
            file.write((", " if number else "") + json.dumps(entry))
        file.write("]}")
    tracemalloc.start()
    total = sum(entry.size for entry in read_outputs(str(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == sum(range(100_000))
    assert peak < 4_000_000


@pytest.mark.parametrize(
    "text", ["", "[]", '{"outputs": [{"path": "a"', '{"outputs": [{"path": 1}]}', '{"outputs": [7]}']
)
def test_a_damaged_list_is_reported(tmp_path, text):
    path = tmp_path / "outputs.json"
    path.write_text(text)
    with pytest.raises(HistoryError):
        list(read_outputs(str(path)))


def test_memory_does_not_grow_with_the_file(run, tmp_path):
    os.truncate(write_output(run, "large"), 256 << 20)
    write_manifest(run)
    tracemalloc.start()
    download(run, str(tmp_path / "got"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_swapping_a_folder_for_a_link_never_escapes(run, tmp_path):
    """A thread repeatedly replaces a folder in the destination with a link."""
    for number in range(300):
        write_output(run, f"d/{number}")
    write_manifest(run)
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
    with SafeFolders(str(tmp_path)) as folders:
        for name in ("gone", "link", "never was"):
            remove_at(folders.open(""), name)
    assert sorted(os.listdir(tmp_path)) == ["mine"] and (tmp_path / "mine" / "precious").exists()


def test_many_skipped_outputs_are_counted_but_not_kept(run, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_ENTRIES", 3)
    for number in range(8):
        os.symlink("/etc/passwd", os.path.join(run.outputs, f"link{number}"))
    write_manifest(run)
    outcome, _ = download(run, str(tmp_path / "got"))
    assert (len(outcome.skipped), outcome.skipped.total) == (3, 8)


def test_kinds_that_count_as_files():
    assert [Output("a", 1, None, kind).is_file for kind in ("file", "not hashed", "link", "fifo")] == [
        True,
        True,
        False,
        False,
    ]
