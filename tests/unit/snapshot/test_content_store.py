"""The content store: full disks, limits, and killed snapshots. An incomplete blob never gets its final name."""

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
from mlworkbench.remote.working_copy import create_working_copy

from .project_trees import PROJECT, SnapshotWorkspace, in_child, read_tree


@pytest.fixture
def workspace(tmp_path: Path) -> SnapshotWorkspace:
    return SnapshotWorkspace(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB with space for 60 files. Needs root."""
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


def test_same_content_once(workspace: SnapshotWorkspace) -> None:
    for name in ("a", "b", "sub/c"):
        workspace.write(name, b"same")
    workspace.take()
    assert workspace.check_store() == 1


def test_large_files(workspace: SnapshotWorkspace) -> None:
    contents = {f"f{size}": os.urandom(size) for size in (1 << 20, (1 << 20) + 1, 5_000_000)}
    contents["zeros"] = bytes(3 << 20)
    for name, data in contents.items():
        workspace.write(name, data)
    digest = workspace.take().digest
    assert {file[0]: file[1] for file in workspace.manifest(digest)["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in contents.items()
    }
    assert workspace.check_store() == 4
    tree = read_tree(workspace.place(digest).work, outputs=False)
    assert {os.fsdecode(name): thing[1] for name, thing in tree.items()} == contents


def test_memory_is_constant(workspace: SnapshotWorkspace) -> None:
    os.truncate(workspace.write("big", b"x"), 400_000_000)

    def measure() -> str:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        workspace.take()
        return str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    assert int(in_child(measure)) < 20_000  # kB of memory


def test_disk_known_to_be_too_small(workspace: SnapshotWorkspace, small_disk: Path) -> None:
    workspace.root = Root(os.fspath(small_disk / "home"))
    for number in range(4):
        workspace.write(f"f{number}", os.urandom(2_000_000))
    with pytest.raises(SnapshotError) as caught:
        workspace.take()
    assert caught.value.message == (
        f"the disk that holds {workspace.root.path} (mounted at {small_disk}) has no room for the snapshot:"
        " up to 8.0 MB needed, 4.2 MB free"
    )
    assert ".mlwignore" in (caught.value.hint or "")
    assert os.listdir(workspace.root.blobs) == []
    assert not os.path.exists(workspace.root.snapshots)
    workspace.write(".mlwignore", "f0\nf1\nf2\n")
    assert workspace.paths(workspace.take().digest) == [".mlwignore", "f3"]


def test_disk_full_under_way(workspace: SnapshotWorkspace, small_disk: Path) -> None:
    """The disk has too few inodes. The check of its free space cannot detect this in advance."""
    workspace.root = Root(os.fspath(small_disk / "home"))
    for number in range(100):
        workspace.write(f"f{number}", b"%d" % number)
    with pytest.raises(SnapshotError, match="has no room for the snapshot"):
        workspace.take()
    assert 0 < workspace.check_store() < 100
    assert not os.path.exists(workspace.root.snapshots) or os.listdir(workspace.root.snapshots) == []


def test_disk_full_at_the_last_byte(workspace: SnapshotWorkspace, small_disk: Path) -> None:
    """Another program uses the free space during the snapshot."""
    workspace.root = Root(os.fspath(small_disk / "home"))
    workspace.write("a", b"first")
    workspace.write("sub/big", os.urandom(3_000_000))

    def fill(done: int, total: int) -> None:
        (small_disk / "other").write_bytes(bytes(2_000_000))

    with pytest.raises(SnapshotError, match="has no room for the snapshot"):
        workspace.take(fill)
    assert workspace.check_store() == 1
    os.unlink(small_disk / "other")
    digest = workspace.take().digest
    assert workspace.check_store() == 2 and workspace.paths(digest) == ["a", "sub/big"]


def test_disk_full_in_working_copy(workspace: SnapshotWorkspace, small_disk: Path) -> None:
    workspace.write("a", os.urandom(3_000_000))
    digest = workspace.take().digest
    workspace.root.runs = os.fspath(small_disk)
    (small_disk / "other").write_bytes(bytes(2_000_000))
    run = workspace.run()
    with pytest.raises(OSError, match="No space left"):
        create_working_copy(workspace.root, digest, PROJECT, run)
    assert os.listdir(run.path) == []
    os.unlink(small_disk / "other")
    create_working_copy(workspace.root, digest, PROJECT, run)
    assert read_tree(run.work, outputs=False) == read_tree(workspace.project)


def test_limit_on_file_size(workspace: SnapshotWorkspace) -> None:
    workspace.write("small", b"s")
    workspace.write("sub/big", os.urandom(3_000_000))

    def take_limited() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        return workspace.take().digest

    assert in_child(take_limited).startswith("SnapshotError: cannot write to the store ")
    assert workspace.check_store() == 1
    workspace.take()
    assert workspace.check_store() == 2


def test_store_not_writable(workspace: SnapshotWorkspace) -> None:
    workspace.write("a")
    Path(workspace.root.path).write_text("in the way")
    with pytest.raises(SnapshotError, match="cannot write to the store .*: File exists"):
        workspace.take()


def test_rubbish_of_killed_snapshots(workspace: SnapshotWorkspace) -> None:
    os.makedirs(workspace.root.blobs)
    old, young = Path(workspace.root.blobs, "part-1-a"), Path(workspace.root.blobs, "part-1-b")
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 100_000, time.time() - 100_000))
    workspace.write("a")
    workspace.take()
    assert not old.exists() and young.exists()
