"""The content store: full disks, limits, killed snapshots; never half a blob under its final name."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlworkbench.errors import SnapshotError
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.workcopy import place

from .snapshot_trees import PROJECT, Desk, in_child, read_tree


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB with room for 60 files; needs root, which the tests of this project run as."""
    folder = tmp_path / "small disk"
    folder.mkdir()
    mounted = (
        os.getuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=60,mode=700", "none", folder], check=False
        ).returncode
    )
    if not mounted:
        pytest.skip("no permission to mount a small disk; the limit on file sizes is tested without")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_same_content_once(desk: Desk) -> None:
    for name in ("a", "b", "sub/c"):
        desk.write(name, b"same")
    desk.take()
    assert desk.check_store() == 1


def test_large_files(desk: Desk) -> None:
    contents = {f"f{size}": os.urandom(size) for size in (1 << 20, (1 << 20) + 1, 5_000_000)}
    contents["zeros"] = bytes(3 << 20)
    for name, data in contents.items():
        desk.write(name, data)
    digest = desk.take().digest
    assert {file[0]: file[1] for file in desk.manifest(digest)["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in contents.items()
    }
    assert desk.check_store() == 4
    tree = read_tree(desk.place(digest).work, outputs=False)
    assert {os.fsdecode(name): thing[1] for name, thing in tree.items()} == contents


def test_memory_is_constant(desk: Desk) -> None:
    os.truncate(desk.write("big", b"x"), 400_000_000)

    def measure() -> str:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        desk.take()
        return str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    assert int(in_child(measure)) < 20_000  # kB


def test_disk_known_to_be_too_small(desk: Desk, small_disk: Path) -> None:
    desk.root = Root(os.fspath(small_disk / "home"))
    for number in range(4):
        desk.write(f"f{number}", os.urandom(2_000_000))
    with pytest.raises(SnapshotError) as caught:
        desk.take()
    assert caught.value.message == (
        f"the disk that holds {desk.root.path} (mounted at {small_disk}) has no room for the snapshot:"
        " up to 8.0 MB needed, 4.2 MB free"
    )
    assert ".mlwignore" in (caught.value.hint or "")
    assert os.listdir(desk.root.blobs) == []
    assert not os.path.exists(desk.root.snapshots)
    desk.write(".mlwignore", "f0\nf1\nf2\n")
    assert desk.paths(desk.take().digest) == [".mlwignore", "f3"]


def test_disk_full_under_way(desk: Desk, small_disk: Path) -> None:
    """Too many files for the disk: its size says nothing beforehand."""
    desk.root = Root(os.fspath(small_disk / "home"))
    for number in range(100):
        desk.write(f"f{number}", b"%d" % number)
    with pytest.raises(SnapshotError, match="has no room for the snapshot"):
        desk.take()
    assert 0 < desk.check_store() < 100
    assert not os.path.exists(desk.root.snapshots) or os.listdir(desk.root.snapshots) == []


def test_disk_full_at_the_last_byte(desk: Desk, small_disk: Path) -> None:
    """Other programs write, too: what was free at the beginning is gone in the middle."""
    desk.root = Root(os.fspath(small_disk / "home"))
    desk.write("a", b"first")
    desk.write("sub/big", os.urandom(3_000_000))

    def fill(done: int, total: int) -> None:
        (small_disk / "other").write_bytes(bytes(2_000_000))

    with pytest.raises(SnapshotError, match="has no room for the snapshot"):
        desk.take(fill)
    assert desk.check_store() == 1
    os.unlink(small_disk / "other")
    digest = desk.take().digest
    assert desk.check_store() == 2 and desk.paths(digest) == ["a", "sub/big"]


def test_disk_full_in_working_copy(desk: Desk, small_disk: Path) -> None:
    desk.write("a", os.urandom(3_000_000))
    digest = desk.take().digest
    desk.root.runs = os.fspath(small_disk)
    (small_disk / "other").write_bytes(bytes(2_000_000))
    run = desk.run()
    with pytest.raises(OSError, match="No space left"):
        place(desk.root, digest, PROJECT, run)
    assert os.listdir(run.path) == []
    os.unlink(small_disk / "other")
    place(desk.root, digest, PROJECT, run)
    assert read_tree(run.work, outputs=False) == read_tree(desk.project)


def test_limit_on_file_size(desk: Desk) -> None:
    desk.write("small", b"s")
    desk.write("sub/big", os.urandom(3_000_000))

    def take_limited() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        return desk.take().digest

    assert in_child(take_limited).startswith("SnapshotError: cannot write to the store ")
    assert desk.check_store() == 1
    desk.take()
    assert desk.check_store() == 2


def test_store_not_writable(desk: Desk) -> None:
    desk.write("a")
    Path(desk.root.path).write_text("in the way")
    with pytest.raises(SnapshotError, match="cannot write to the store .*: File exists"):
        desk.take()


def test_rubbish_of_killed_snapshots(desk: Desk) -> None:
    os.makedirs(desk.root.blobs)
    old, young = Path(desk.root.blobs, "part-1-a"), Path(desk.root.blobs, "part-1-b")
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 100_000, time.time() - 100_000))
    desk.write("a")
    desk.take()
    assert not old.exists() and young.exists()
