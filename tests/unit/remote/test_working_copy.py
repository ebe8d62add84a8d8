"""The working copy of a run, and the warm copy that it leaves for the next run."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.working_copy import create_working_copy, recycle_working_copy
from tests.interpreters import oldest_and_newest

from ..snapshot.project_trees import PROJECT, SOURCE, SnapshotWorkspace, fork, in_child, read_tree


@pytest.fixture
def workspace(tmp_path: Path) -> SnapshotWorkspace:
    workspace = SnapshotWorkspace(tmp_path)
    workspace.write("train.py", "print(1)\n")
    workspace.write("bin/go", "#!/bin/sh\n", mode=0o755)
    workspace.write("lib/deep/a.py", "a = 1\n")
    workspace.write("lib/deep/b.py", "b = 1\n")
    workspace.write("data/big", os.urandom(2_000_000))
    os.makedirs(workspace.project / "hollow")
    os.symlink("lib/deep", workspace.project / "short")
    return workspace


def inodes(folder: str) -> dict[str, int]:
    result = {}
    for path, _, names in os.walk(folder):
        for name in names:
            full = os.path.join(path, name)
            if not os.path.islink(full):
                result[os.path.relpath(full, folder)] = os.lstat(full).st_ino
    return result


# -- create -------------------------------------------------------------------------------------------


def test_create(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    run = workspace.place(digest)
    assert read_tree(run.work, outputs=False) == read_tree(workspace.project)
    assert os.listdir(run.outputs) == []
    assert sorted(os.listdir(run.path)) == ["placed.json", "work"]
    placed = json.loads(Path(run.placed).read_text())
    assert placed["digest"] == digest
    status = os.stat(os.path.join(run.work, "train.py"))
    assert placed["files"]["train.py"][:4] == [
        9,
        status.st_mtime_ns,
        status.st_ino,
        hashlib.sha256(b"print(1)\n").hexdigest(),
    ]


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes(workspace: SnapshotWorkspace, umask: int) -> None:
    digest = workspace.take().digest
    before = os.umask(umask)
    try:
        run = workspace.place(digest)
    finally:
        os.umask(before)
    for path, _, _ in os.walk(run.work):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(run.work + "/train.py").st_mode) == 0o644
    assert stat.S_IMODE(os.stat(run.work + "/bin/go").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(run.placed).st_mode) == 0o600


def test_create_twice(workspace: SnapshotWorkspace) -> None:
    """A second supervisor of the run must not undo changes that the script made."""
    digest = workspace.take().digest
    run = workspace.place(digest)
    Path(run.work, "train.py").write_text("changed by the script")
    create_working_copy(workspace.root, digest, PROJECT, run)
    assert Path(run.work, "train.py").read_text() == "changed by the script"


def test_append_never_reaches_the_store(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    for _ in range(3):
        run = workspace.place(digest)
        assert read_tree(run.work, outputs=False) == read_tree(workspace.project)
        for path, _, names in os.walk(run.work):
            for name in names:
                with open(os.path.join(path, name), "ab") as file:
                    file.write(b"more")
        workspace.check_store()
        workspace.recycle(digest, run)


@pytest.mark.parametrize("loss", ["gone", "short"])
def test_damaged_store_is_repaired(workspace: SnapshotWorkspace, loss: str) -> None:
    digest = workspace.take().digest
    blob = Path(workspace.root.blob(hashlib.sha256(b"a = 1\n").hexdigest()))
    blob.unlink()
    if loss == "short":
        blob.write_bytes(b"a =")
    run = workspace.run()
    with pytest.raises(OSError, match="damaged file, now removed; submit again"):
        create_working_copy(workspace.root, digest, PROJECT, run)
    assert os.listdir(run.path) == []
    assert workspace.take().digest == digest
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)


INVALID_PATHS = [
    "/etc/passwd",
    "../x",
    "a/../../x",
    "..",
    ".",
    "",
    "a//b",
    "a/",
    "./a",
    "a\0b",
    "outputs",
    "outputs/x",
    "a/./b",
]


@pytest.mark.parametrize("path", INVALID_PATHS)
@pytest.mark.parametrize("kind", ["files", "links", "folders"])
def test_invalid_paths_are_refused(workspace: SnapshotWorkspace, path: str, kind: str) -> None:
    blob = hashlib.sha256(b"print(1)\n").hexdigest()
    workspace.take()
    manifest: dict[str, Any] = {"version": 1, "files": [], "links": [], "folders": []}
    manifest[kind] = [{"files": [path, blob, 9, 0o644], "links": [path, "x"], "folders": path}[kind]]
    with pytest.raises(OSError, match="outside the working folder") as caught:
        workspace.place(write_manifest(workspace, manifest))
    assert caught.value.errno == errno.EBADMSG


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        [],
        {"version": 1, "files": 3, "links": [], "folders": []},
        {"version": 1, "files": [["a", "../../../../etc/passwd", 1, 0o644]], "links": [], "folders": []},
        {"version": 1, "files": [["a", "0" * 64, 1, 0o4755]], "links": [], "folders": []},
        {"version": 1, "files": [["a"]], "links": [], "folders": []},
    ],
)
def test_invalid_manifest(workspace: SnapshotWorkspace, manifest: Any) -> None:
    with pytest.raises(OSError, match="the snapshot's file list was damaged"):
        workspace.place(write_manifest(workspace, manifest))


def test_truncated_manifest_is_repaired(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    os.truncate(workspace.root.snapshot(digest), 100)
    with pytest.raises(OSError, match="has been removed; submit again"):
        workspace.place(digest)
    assert workspace.take().digest == digest
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)


def write_manifest(workspace: SnapshotWorkspace, manifest: Any) -> str:
    os.makedirs(workspace.root.snapshots, exist_ok=True)
    Path(workspace.root.snapshot("d" * 64)).write_text(json.dumps(manifest))
    return "d" * 64


def test_nothing_is_written_through_a_link(workspace: SnapshotWorkspace) -> None:
    """A file below a link of the same manifest would be written to the target of the link."""
    outside = workspace.folder / "elsewhere"
    outside.mkdir()
    workspace.take()
    blob = hashlib.sha256(b"print(1)\n").hexdigest()
    manifest = {
        "version": 1,
        "files": [["way/file", blob, 9, 0o644]],
        "links": [["way", os.fspath(outside)]],
        "folders": ["way/folder"],
    }
    with pytest.raises(FileExistsError):
        workspace.place(write_manifest(workspace, manifest))
    assert list(outside.iterdir()) == []


# -- warm copy --------------------------------------------------------------------------------------------


def test_warm_copy_is_reused(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    first = workspace.place(digest)
    before = inodes(first.work)
    workspace.recycle(digest, first)
    assert os.listdir(workspace.root.warm_copies) == [PROJECT]
    second = workspace.place(digest)
    assert inodes(second.work) == before
    assert read_tree(second.work, outputs=False) == read_tree(workspace.project)
    assert os.listdir(workspace.root.warm_copies) == []
    workspace.recycle(digest, second)
    assert inodes(workspace.place(digest).work) == before


def test_files_of_the_script_stay(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    run = workspace.place(digest)
    Path(run.outputs, "model.bin").write_bytes(b"model")
    Path(run.work, "train.py").write_text("rewritten\n")
    Path(run.work, "lib/deep/__pycache__").mkdir()
    Path(run.work, "lib/deep/__pycache__/a.pyc").write_bytes(b"code")
    Path(run.work, "made/by/script").mkdir(parents=True)
    workspace.recycle(digest, run)
    assert read_tree(run.work) == {
        b"outputs/model.bin": ("file", b"model", 0o644),
        b"train.py": ("file", b"rewritten\n", 0o644),
        b"lib/deep/__pycache__/a.pyc": ("file", b"code", 0o644),
        b"made/by/script": ("folder",),
        b"hollow": ("folder",),
        b"short": ("link", b"lib/deep"),
    }
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)


def _rewrite_quietly(work: Path) -> None:
    """Change the content of a file, but keep its size and modification time."""
    before = (work / "train.py").stat()
    (work / "train.py").write_text("print(2)\n")
    os.utime(work / "train.py", ns=(before.st_atime_ns, before.st_mtime_ns))


def _hard_link(work: Path) -> None:
    os.link(work / "train.py", work / "outputs" / "copy.py")


def _swap(work: Path) -> None:
    os.rename(work / "lib/deep/a.py", work / "x")
    os.rename(work / "lib/deep/b.py", work / "lib/deep/a.py")
    os.rename(work / "x", work / "lib/deep/b.py")


def _folder_to_link(work: Path) -> None:
    """Replace a folder with a link to a copy. The files behind the link must not be moved."""
    target = work.parent.parent / "elsewhere"
    shutil.copytree(work / "lib", target)
    shutil.rmtree(work / "lib")
    (work / "lib").symlink_to(target)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda work: (work / "train.py").write_text("print(9)\n"),
    "quiet": _rewrite_quietly,
    "append": lambda work: (work / "data/big").write_bytes((work / "data/big").read_bytes() + b"x"),
    "mode": lambda work: (work / "train.py").chmod(0o600),
    "executable": lambda work: (work / "bin/go").chmod(0o644),
    "removed": lambda work: (work / "lib/deep/a.py").unlink(),
    "hard link": _hard_link,
    "swapped": _swap,
    "folder to link": _folder_to_link,
    "file to folder": lambda work: ((work / "train.py").unlink(), (work / "train.py/x").mkdir(parents=True)),
    "closed folder": lambda work: (work / "lib/deep").chmod(0o500),
    "all removed": lambda work: [shutil.rmtree(work / name) for name in ("bin", "lib", "data", "hollow", "outputs")],
    "extra": lambda work: (work / "lib/deep/extra").touch(),
    "extra folder": lambda work: (work / "lib/deep/extra").mkdir(),
    "hollow filled": lambda work: (work / "hollow/x").touch(),
    "hollow removed": lambda work: (work / "hollow").rmdir(),
    "link changed": lambda work: ((work / "short").unlink(), (work / "short").symlink_to("/etc")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_do_not_reach_the_next_run(workspace: SnapshotWorkspace, change: str) -> None:
    digest = workspace.take().digest
    for _ in range(2):
        run = workspace.place(digest)
        CHANGES[change](Path(run.work))
        workspace.recycle(digest, run)
        shutil.rmtree(workspace.root.runs + "/elsewhere", ignore_errors=True)
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)
    workspace.check_store()


def test_links_are_not_followed_when_moving(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    run = workspace.place(digest)
    outside = workspace.folder / "elsewhere"
    os.rename(os.path.join(run.work, "lib"), outside)
    os.symlink(outside, os.path.join(run.work, "lib"))
    workspace.recycle(digest, run)
    assert sorted(os.listdir(outside / "deep")) == ["a.py", "b.py"]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_in_the_warm_copy(workspace: SnapshotWorkspace, change: str) -> None:
    """A process that outlived the run still writes to the warm copy."""
    digest = workspace.take().digest
    run = workspace.place(digest)
    workspace.recycle(digest, run)
    tree = Path(workspace.root.warm_copy(PROJECT), "tree")
    for name in ("outputs", "hollow"):
        (tree / name).mkdir()
    (tree / "short").symlink_to("lib/deep")
    CHANGES[change](tree)
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)
    workspace.check_store()


def test_warm_copy_of_another_snapshot(workspace: SnapshotWorkspace) -> None:
    """Only differences are copied, even if files, folders, and links replace each other."""
    first = workspace.take().digest
    run = workspace.place(first)
    before = inodes(run.work)
    workspace.recycle(first, run)
    workspace.write("train.py", "print(22)\n")
    os.chmod(workspace.project / "bin/go", 0o644)
    shutil.rmtree(workspace.project / "lib")
    workspace.write("lib", "a file now")
    workspace.write("data/new/x")
    os.unlink(workspace.project / "short")
    workspace.write("short/y")
    os.rmdir(workspace.project / "hollow")
    os.symlink("data", workspace.project / "hollow")
    second = workspace.take().digest
    run = workspace.place(second)
    assert read_tree(run.work, outputs=False) == read_tree(workspace.project)
    assert inodes(run.work)["data/big"] == before["data/big"]
    assert json.loads(Path(run.placed).read_text())["digest"] == second
    workspace.recycle(second, run)
    assert read_tree(workspace.place(first).work, outputs=False) != read_tree(workspace.project)


@pytest.mark.parametrize("damage", ["record gone", "record cut", "tree gone", "empty", "not a folder"])
def test_damaged_warm_copy(workspace: SnapshotWorkspace, damage: str) -> None:
    digest = workspace.take().digest
    run = workspace.place(digest)
    workspace.recycle(digest, run)
    warm_copy = Path(workspace.root.warm_copy(PROJECT))
    record = warm_copy / "placed.json"
    if damage == "record gone":
        record.unlink()
    elif damage == "record cut":
        record.write_bytes(record.read_bytes()[:-20])
    elif damage == "tree gone":
        shutil.rmtree(warm_copy / "tree")
    else:
        shutil.rmtree(warm_copy)
        warm_copy.mkdir() if damage == "empty" else warm_copy.symlink_to("/nonexistent")
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)


def test_only_one_warm_copy_is_kept(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    runs = [workspace.place(digest) for _ in range(2)]
    for run in runs:
        workspace.recycle(digest, run)
        assert os.listdir(workspace.root.warm_copies) == [PROJECT]
        assert b"train.py" not in read_tree(run.work)
    workspace.recycle(digest, runs[0])  # a second supervisor repeats the step
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)


def test_recycle_without_record(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    run = workspace.place(digest)
    recycle_working_copy(workspace.root, "0" * 64, PROJECT, run)
    os.unlink(run.placed)
    recycle_working_copy(workspace.root, digest, PROJECT, run)
    assert not os.path.exists(workspace.root.warm_copies)
    assert read_tree(run.work, outputs=False) == read_tree(workspace.project)


def test_warm_copy_is_taken_once(workspace: SnapshotWorkspace) -> None:
    """Of eight runs at the same time, one gets the warm copy, and all get a correct working copy."""
    digest = workspace.take().digest
    expected = read_tree(workspace.project)
    for _ in range(5):
        first = workspace.place(digest)
        warm_copy = inodes(first.work)
        workspace.recycle(digest, first)
        start = time.monotonic() + 0.1
        runs = [workspace.run() for _ in range(8)]
        children = []
        for run in runs:
            child = fork()
            if child == 0:
                time.sleep(max(0.0, start - time.monotonic()))
                in_child(lambda run=run: str(create_working_copy(workspace.root, digest, PROJECT, run)))
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        assert all(read_tree(run.work, outputs=False) == expected for run in runs)
        assert sum(inodes(run.work) == warm_copy for run in runs) == 1
        owned = [inode for run in runs for inode in inodes(run.work).values()]
        assert len(owned) == len(set(owned))


# -- killed at any point -------------------------------------------------------------------------------


def kill_at(step: int, action: Callable[[], None]) -> str:
    """Run ``action`` in a process that is killed at disk access ``step``. Return "done" if there are fewer accesses."""

    def work() -> str:
        count = 0

        def hook(event: str, _: object) -> None:
            nonlocal count
            if event.startswith("os.") or event == "open":
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        action()
        return "done"

    return in_child(work)


@pytest.mark.parametrize("warm_copy", [False, True])
def test_killed_while_creating(workspace: SnapshotWorkspace, warm_copy: bool) -> None:
    digest = workspace.take().digest
    expected = read_tree(workspace.project)
    step = 0
    result = "killed"
    while result == "killed":
        step += 1
        run = workspace.run()
        result = kill_at(step, lambda run=run: create_working_copy(workspace.root, digest, PROJECT, run))  # type: ignore[misc]
        if os.path.exists(run.work):
            assert read_tree(run.work, outputs=False) == expected
            assert os.path.exists(run.placed)
        create_working_copy(workspace.root, digest, PROJECT, run)
        assert read_tree(run.work, outputs=False) == expected
        if warm_copy:
            recycle_working_copy(workspace.root, digest, PROJECT, run)
    assert result == "done" and step > (15 if warm_copy else 40)
    workspace.check_store()


def test_killed_while_recycling(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    expected = read_tree(workspace.project)
    step = 0
    result = "killed"
    while result == "killed":
        step += 1
        run = workspace.place(digest)
        Path(run.outputs, "result").write_bytes(b"result")
        Path(run.work, "lib/deep/made").write_bytes(b"made")
        if step % 2:
            Path(run.work, "train.py").write_text("print(7)\n")
        result = kill_at(step, lambda run=run: recycle_working_copy(workspace.root, digest, PROJECT, run))  # type: ignore[misc]
        assert Path(run.outputs, "result").read_bytes() == b"result"
        assert Path(run.work, "lib/deep/made").read_bytes() == b"made"
        assert read_tree(workspace.place(digest).work, outputs=False) == expected
        recycle_working_copy(workspace.root, digest, PROJECT, run)  # the next supervisor repeats the step
        assert read_tree(workspace.place(digest).work, outputs=False) == expected
    assert result == "done" and step > 30
    workspace.check_store()


def test_leftovers_of_killed_processes(workspace: SnapshotWorkspace) -> None:
    digest = workspace.take().digest
    for age, name in ((0, ".p1-1-young"), (7200, ".p2-1-old")):
        leftover = Path(workspace.root.warm_copies, name)
        (leftover / "tree").mkdir(parents=True)
        os.utime(leftover, (time.time() - age, time.time() - age))
    workspace.recycle(digest, workspace.place(digest))
    assert sorted(os.listdir(workspace.root.warm_copies)) == [".p1-1-young", "p1"]


# -- on the target ------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", [path for _, path in oldest_and_newest((3, 8))])
def test_old_and_new_interpreters(workspace: SnapshotWorkspace, python: str) -> None:
    """Run as on a target: only the uploaded package, in isolated mode, without site-packages."""
    digest = workspace.take().digest
    runs = [workspace.run(), workspace.run()]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True\n"
        "from remote.shared.layout import Root, RunFolder\n"
        "from remote.working_copy import create_working_copy, recycle_working_copy\n"
        "root = Root(sys.argv[2])\n"
        "for path in sys.argv[4:]:\n"
        "    create_working_copy(root, sys.argv[3], 'p1', RunFolder(path))\n"
        "    if path == sys.argv[4]: recycle_working_copy(root, sys.argv[3], 'p1', RunFolder(path))\n"
    )
    command = [
        python,
        "-I",
        "-S",
        "-c",
        code,
        SOURCE / "mlworkbench",
        workspace.root.path,
        digest,
        *(r.path for r in runs),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert read_tree(runs[1].work, outputs=False) == read_tree(workspace.project)
    assert b"train.py" not in read_tree(runs[0].work)


def test_imports_are_small() -> None:
    """Every supervisor imports this module, so it must not import large modules."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from remote.working_copy import create_working_copy\n"
        "print([m for m in ('hashlib', 'shutil', 'tempfile', 'pathlib', 'subprocess') if m in sys.modules])"
    )
    command = [sys.executable, "-I", "-S", "-c", code, SOURCE / "mlworkbench"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_reflink(tmp_path: Path, kind: str) -> None:
    """On a file system with reflinks, a snapshot and a working copy take no additional space."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    image.touch()
    os.truncate(image, 400_000_000)
    if shutil.which(f"mkfs.{kind}") is None or os.getuid() != 0:
        pytest.skip(f"mkfs.{kind} is not installed, or not root")
    subprocess.run([f"mkfs.{kind}", "-q", image], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", image, folder], check=False, capture_output=True).returncode:
        pytest.skip(f"this machine cannot mount {kind}")
    try:
        workspace = SnapshotWorkspace(folder)
        workspace.write("big", os.urandom(60_000_000))
        os.sync()
        before = os.statvfs(folder)
        digest = workspace.take().digest
        run = workspace.place(digest)
        os.sync()
        used = (before.f_bfree - os.statvfs(folder).f_bfree) * before.f_frsize
        assert read_tree(run.work, outputs=False) == read_tree(workspace.project)
        with open(run.work + "/big", "ab") as file:
            file.write(b"more")
        assert workspace.check_store() == 1
        assert used < 20_000_000
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_root_defines_paths() -> None:
    """Paths of warm copies and placement records do not change, because older versions have written them."""
    root = Root("/r")
    assert root.warm_copy("p") == "/r/spares/p"
    assert root.run("x").placed == "/r/runs/x/placed.json"


def test_files_of_a_container_are_not_reused_without_one(workspace: SnapshotWorkspace) -> None:
    """A process in a container that still has the file open could change it after all checks."""
    digest = workspace.take().digest
    inodes = {}
    for name, contained in (("first", True), ("second", False), ("third", True)):
        run = workspace.root.run(name)
        os.makedirs(run.path)
        create_working_copy(workspace.root, digest, PROJECT, run, contained)
        inodes[name] = os.stat(os.path.join(run.work, "train.py")).st_ino
        if name == "first":
            held = open(os.path.join(run.work, "train.py"), "r+b")
            recycle_working_copy(workspace.root, digest, PROJECT, run, contained)
    held.write(b"print(2)")
    held.close()
    assert Path(workspace.root.run("second").work, "train.py").read_text() == "print(1)\n"
    assert inodes["first"] != inodes["second"] and inodes["first"] == inodes["third"]


def test_unreadable_folders_are_removed(tmp_path: Path) -> None:
    """A hostile container may have removed the permissions."""
    tree = tmp_path / "tree"
    (tree / "closed" / "inner").mkdir(parents=True)
    (tree / "fixed" / "inner").mkdir(parents=True)
    (tree / "fixed" / "inner" / "file").touch()
    code = "import sys; from mlworkbench.remote.shared.folder_tree import remove; remove(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tree)]
    if os.geteuid() == 0:  # drop the capabilities with which root ignores permissions
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    (tree / "closed").chmod(0)
    (tree / "fixed" / "inner").chmod(0o500)
    (tree / "fixed").chmod(0o400)
    tree.chmod(0)
    completed = subprocess.run(command, capture_output=True, text=True)
    assert completed.returncode == 0 and not tree.exists(), completed
