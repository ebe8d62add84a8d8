"""The working copy of a run, and the spare that is left of it for the next one."""

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
from mlworkbench.remote.workcopy import place, recycle
from tests.interpreters import oldest_and_newest

from .snapshot_trees import PROJECT, SOURCE, Desk, fork, in_child, read_tree


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("train.py", "print(1)\n")
    desk.write("bin/go", "#!/bin/sh\n", mode=0o755)
    desk.write("lib/deep/a.py", "a = 1\n")
    desk.write("lib/deep/b.py", "b = 1\n")
    desk.write("data/big", os.urandom(2_000_000))
    os.makedirs(desk.project / "hollow")
    os.symlink("lib/deep", desk.project / "short")
    return desk


def inodes(folder: str) -> dict[str, int]:
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            full = os.path.join(path, name)
            if not os.path.islink(full):
                found[os.path.relpath(full, folder)] = os.lstat(full).st_ino
    return found


# -- place --------------------------------------------------------------------------------------------


def test_place(desk: Desk) -> None:
    digest = desk.take().digest
    run = desk.place(digest)
    assert read_tree(run.work, outputs=False) == read_tree(desk.project)
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
def test_modes(desk: Desk, umask: int) -> None:
    digest = desk.take().digest
    before = os.umask(umask)
    try:
        run = desk.place(digest)
    finally:
        os.umask(before)
    for path, _, _ in os.walk(run.work):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(run.work + "/train.py").st_mode) == 0o644
    assert stat.S_IMODE(os.stat(run.work + "/bin/go").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(run.placed).st_mode) == 0o600


def test_place_twice(desk: Desk) -> None:
    """The second supervisor of a run must not undo what the script has begun."""
    digest = desk.take().digest
    run = desk.place(digest)
    Path(run.work, "train.py").write_text("changed by the script")
    place(desk.root, digest, PROJECT, run)
    assert Path(run.work, "train.py").read_text() == "changed by the script"


def test_append_never_reaches_the_store(desk: Desk) -> None:
    digest = desk.take().digest
    for _ in range(3):
        run = desk.place(digest)
        assert read_tree(run.work, outputs=False) == read_tree(desk.project)
        for path, _, names in os.walk(run.work):
            for name in names:
                with open(os.path.join(path, name), "ab") as file:
                    file.write(b"more")
        desk.check_store()
        desk.recycle(digest, run)


@pytest.mark.parametrize("loss", ["gone", "short"])
def test_damaged_store_heals(desk: Desk, loss: str) -> None:
    digest = desk.take().digest
    blob = Path(desk.root.blob(hashlib.sha256(b"a = 1\n").hexdigest()))
    blob.unlink()
    if loss == "short":
        blob.write_bytes(b"a =")
    run = desk.run()
    with pytest.raises(OSError, match="damaged file, now removed; submit again"):
        place(desk.root, digest, PROJECT, run)
    assert os.listdir(run.path) == []
    assert desk.take().digest == digest
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)


BAD_PATHS = [
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


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize("kind", ["files", "links", "folders"])
def test_bad_paths_refused(desk: Desk, path: str, kind: str) -> None:
    blob = hashlib.sha256(b"print(1)\n").hexdigest()
    desk.take()
    manifest: dict[str, Any] = {"version": 1, "files": [], "links": [], "folders": []}
    manifest[kind] = [{"files": [path, blob, 9, 0o644], "links": [path, "x"], "folders": path}[kind]]
    with pytest.raises(OSError, match="outside the working folder") as caught:
        desk.place(write_manifest(desk, manifest))
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
def test_bad_manifest(desk: Desk, manifest: Any) -> None:
    with pytest.raises(OSError, match="the snapshot's file list was damaged"):
        desk.place(write_manifest(desk, manifest))


def test_cut_manifest_heals(desk: Desk) -> None:
    digest = desk.take().digest
    os.truncate(desk.root.snapshot(digest), 100)
    with pytest.raises(OSError, match="has been removed; submit again"):
        desk.place(digest)
    assert desk.take().digest == digest
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)


def write_manifest(desk: Desk, manifest: Any) -> str:
    os.makedirs(desk.root.snapshots, exist_ok=True)
    Path(desk.root.snapshot("d" * 64)).write_text(json.dumps(manifest))
    return "d" * 64


def test_nothing_through_a_link(desk: Desk) -> None:
    """A file below a link of the same list would be written to wherever the link points."""
    elsewhere = desk.folder / "elsewhere"
    elsewhere.mkdir()
    desk.take()
    blob = hashlib.sha256(b"print(1)\n").hexdigest()
    manifest = {
        "version": 1,
        "files": [["way/file", blob, 9, 0o644]],
        "links": [["way", os.fspath(elsewhere)]],
        "folders": ["way/folder"],
    }
    with pytest.raises(FileExistsError):
        desk.place(write_manifest(desk, manifest))
    assert list(elsewhere.iterdir()) == []


# -- spare --------------------------------------------------------------------------------------------


def test_spare_is_reused(desk: Desk) -> None:
    digest = desk.take().digest
    first = desk.place(digest)
    before = inodes(first.work)
    desk.recycle(digest, first)
    assert os.listdir(desk.root.spares) == [PROJECT]
    second = desk.place(digest)
    assert inodes(second.work) == before
    assert read_tree(second.work, outputs=False) == read_tree(desk.project)
    assert os.listdir(desk.root.spares) == []
    desk.recycle(digest, second)
    assert inodes(desk.place(digest).work) == before


def test_what_the_script_made_stays(desk: Desk) -> None:
    digest = desk.take().digest
    run = desk.place(digest)
    Path(run.outputs, "model.bin").write_bytes(b"model")
    Path(run.work, "train.py").write_text("rewritten\n")
    Path(run.work, "lib/deep/__pycache__").mkdir()
    Path(run.work, "lib/deep/__pycache__/a.pyc").write_bytes(b"code")
    Path(run.work, "made/by/script").mkdir(parents=True)
    desk.recycle(digest, run)
    assert read_tree(run.work) == {
        b"outputs/model.bin": ("file", b"model", 0o644),
        b"train.py": ("file", b"rewritten\n", 0o644),
        b"lib/deep/__pycache__/a.pyc": ("file", b"code", 0o644),
        b"made/by/script": ("folder",),
        b"hollow": ("folder",),
        b"short": ("link", b"lib/deep"),
    }
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)


def _rewrite_quietly(work: Path) -> None:
    """Other content, but size and time as before."""
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
    """The files are still found by their paths, but through a link: they are not ours to move."""
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
def test_changes_do_not_reach_the_next_run(desk: Desk, change: str) -> None:
    digest = desk.take().digest
    for _ in range(2):
        run = desk.place(digest)
        CHANGES[change](Path(run.work))
        desk.recycle(digest, run)
        shutil.rmtree(desk.root.runs + "/elsewhere", ignore_errors=True)
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)
    desk.check_store()


def test_links_are_not_followed_when_moving(desk: Desk) -> None:
    digest = desk.take().digest
    run = desk.place(digest)
    elsewhere = desk.folder / "elsewhere"
    os.rename(os.path.join(run.work, "lib"), elsewhere)
    os.symlink(elsewhere, os.path.join(run.work, "lib"))
    desk.recycle(digest, run)
    assert sorted(os.listdir(elsewhere / "deep")) == ["a.py", "b.py"]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_in_the_spare(desk: Desk, change: str) -> None:
    """Something that outlived the run still writes while the spare waits."""
    digest = desk.take().digest
    run = desk.place(digest)
    desk.recycle(digest, run)
    tree = Path(desk.root.spare(PROJECT), "tree")
    for name in ("outputs", "hollow"):
        (tree / name).mkdir()
    (tree / "short").symlink_to("lib/deep")
    CHANGES[change](tree)
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)
    desk.check_store()


def test_spare_of_another_snapshot(desk: Desk) -> None:
    """Only what differs is copied; kinds change places."""
    first = desk.take().digest
    run = desk.place(first)
    before = inodes(run.work)
    desk.recycle(first, run)
    desk.write("train.py", "print(22)\n")
    os.chmod(desk.project / "bin/go", 0o644)
    shutil.rmtree(desk.project / "lib")
    desk.write("lib", "a file now")
    desk.write("data/new/x")
    os.unlink(desk.project / "short")
    desk.write("short/y")
    os.rmdir(desk.project / "hollow")
    os.symlink("data", desk.project / "hollow")
    second = desk.take().digest
    run = desk.place(second)
    assert read_tree(run.work, outputs=False) == read_tree(desk.project)
    assert inodes(run.work)["data/big"] == before["data/big"]
    assert json.loads(Path(run.placed).read_text())["digest"] == second
    desk.recycle(second, run)
    assert read_tree(desk.place(first).work, outputs=False) != read_tree(desk.project)


@pytest.mark.parametrize("damage", ["record gone", "record cut", "tree gone", "empty", "not a folder"])
def test_damaged_spare(desk: Desk, damage: str) -> None:
    digest = desk.take().digest
    run = desk.place(digest)
    desk.recycle(digest, run)
    spare = Path(desk.root.spare(PROJECT))
    record = spare / "placed.json"
    if damage == "record gone":
        record.unlink()
    elif damage == "record cut":
        record.write_bytes(record.read_bytes()[:-20])
    elif damage == "tree gone":
        shutil.rmtree(spare / "tree")
    else:
        shutil.rmtree(spare)
        spare.mkdir() if damage == "empty" else spare.symlink_to("/nonexistent")
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)


def test_one_spare_is_enough(desk: Desk) -> None:
    digest = desk.take().digest
    runs = [desk.place(digest) for _ in range(2)]
    for run in runs:
        desk.recycle(digest, run)
        assert os.listdir(desk.root.spares) == [PROJECT]
        assert b"train.py" not in read_tree(run.work)
    desk.recycle(digest, runs[0])  # repeated by a second supervisor
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)


def test_recycle_without_record(desk: Desk) -> None:
    digest = desk.take().digest
    run = desk.place(digest)
    recycle(desk.root, "0" * 64, PROJECT, run)
    os.unlink(run.placed)
    recycle(desk.root, digest, PROJECT, run)
    assert not os.path.exists(desk.root.spares)
    assert read_tree(run.work, outputs=False) == read_tree(desk.project)


def test_spare_taken_once(desk: Desk) -> None:
    """Eight runs at the same moment: one gets the spare, all get a right copy."""
    digest = desk.take().digest
    wanted = read_tree(desk.project)
    for _ in range(5):
        first = desk.place(digest)
        spare = inodes(first.work)
        desk.recycle(digest, first)
        start = time.monotonic() + 0.1
        runs = [desk.run() for _ in range(8)]
        children = []
        for run in runs:
            child = fork()
            if child == 0:
                time.sleep(max(0.0, start - time.monotonic()))
                in_child(lambda run=run: str(place(desk.root, digest, PROJECT, run)))
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        assert all(read_tree(run.work, outputs=False) == wanted for run in runs)
        assert sum(inodes(run.work) == spare for run in runs) == 1
        owned = [inode for run in runs for inode in inodes(run.work).values()]
        assert len(owned) == len(set(owned))


# -- killed at any moment -----------------------------------------------------------------------------


def kill_at(step: int, action: Callable[[], None]) -> str:
    """Run ``action`` in a process that is killed at its n-th call that touches the disk; "done" if it has fewer."""

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


@pytest.mark.parametrize("spare", [False, True])
def test_killed_in_place(desk: Desk, spare: bool) -> None:
    digest = desk.take().digest
    wanted = read_tree(desk.project)
    step = 0
    answer = "killed"
    while answer == "killed":
        step += 1
        run = desk.run()
        answer = kill_at(step, lambda run=run: place(desk.root, digest, PROJECT, run))  # type: ignore[misc]
        if os.path.exists(run.work):
            assert read_tree(run.work, outputs=False) == wanted
            assert os.path.exists(run.placed)
        place(desk.root, digest, PROJECT, run)
        assert read_tree(run.work, outputs=False) == wanted
        if spare:
            recycle(desk.root, digest, PROJECT, run)
    assert answer == "done" and step > (15 if spare else 40)
    desk.check_store()


def test_killed_in_recycle(desk: Desk) -> None:
    digest = desk.take().digest
    wanted = read_tree(desk.project)
    step = 0
    answer = "killed"
    while answer == "killed":
        step += 1
        run = desk.place(digest)
        Path(run.outputs, "result").write_bytes(b"result")
        Path(run.work, "lib/deep/made").write_bytes(b"made")
        if step % 2:
            Path(run.work, "train.py").write_text("print(7)\n")
        answer = kill_at(step, lambda run=run: recycle(desk.root, digest, PROJECT, run))  # type: ignore[misc]
        assert Path(run.outputs, "result").read_bytes() == b"result"
        assert Path(run.work, "lib/deep/made").read_bytes() == b"made"
        assert read_tree(desk.place(digest).work, outputs=False) == wanted
        recycle(desk.root, digest, PROJECT, run)  # the next supervisor does it again
        assert read_tree(desk.place(digest).work, outputs=False) == wanted
    assert answer == "done" and step > 30
    desk.check_store()


def test_rubbish_of_killed_calls(desk: Desk) -> None:
    digest = desk.take().digest
    for age, name in ((0, ".p1-1-young"), (7200, ".p2-1-old")):
        left = Path(desk.root.spares, name)
        (left / "tree").mkdir(parents=True)
        os.utime(left, (time.time() - age, time.time() - age))
    desk.recycle(digest, desk.place(digest))
    assert sorted(os.listdir(desk.root.spares)) == [".p1-1-young", "p1"]


# -- on the target ------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", [path for _, path in oldest_and_newest((3, 8))])
def test_old_and_new_interpreters(desk: Desk, python: str) -> None:
    """As it runs there: the folder alone, isolated, without site packages, oldest Python included."""
    digest = desk.take().digest
    runs = [desk.run(), desk.run()]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True\n"
        "from remote.shared.layout import Root, RunFolder\n"
        "from remote.workcopy import place, recycle\n"
        "root = Root(sys.argv[2])\n"
        "for path in sys.argv[4:]:\n"
        "    place(root, sys.argv[3], 'p1', RunFolder(path))\n"
        "    if path == sys.argv[4]: recycle(root, sys.argv[3], 'p1', RunFolder(path))\n"
    )
    command = [python, "-I", "-S", "-c", code, SOURCE / "mlworkbench", desk.root.path, digest, *(r.path for r in runs)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert read_tree(runs[1].work, outputs=False) == read_tree(desk.project)
    assert b"train.py" not in read_tree(runs[0].work)


def test_imports_are_light() -> None:
    """The supervisor of every run pays for them."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from remote.workcopy import place\n"
        "print([m for m in ('hashlib', 'shutil', 'tempfile', 'pathlib', 'subprocess') if m in sys.modules])"
    )
    command = [sys.executable, "-I", "-S", "-c", code, SOURCE / "mlworkbench"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_reflink(tmp_path: Path, kind: str) -> None:
    """On a disk that can share blocks a snapshot and a working copy take no room."""
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
        desk = Desk(folder)
        desk.write("big", os.urandom(60_000_000))
        os.sync()
        before = os.statvfs(folder)
        digest = desk.take().digest
        run = desk.place(digest)
        os.sync()
        used = (before.f_bfree - os.statvfs(folder).f_bfree) * before.f_frsize
        assert read_tree(run.work, outputs=False) == read_tree(desk.project)
        with open(run.work + "/big", "ab") as file:
            file.write(b"more")
        assert desk.check_store() == 1
        assert used < 20_000_000
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_root_names_every_file() -> None:
    """What a run consists of is said once; this module adds only names that vanish again."""
    root = Root("/r")
    assert root.spare("p") == "/r/spares/p"
    assert root.run("x").placed == "/r/runs/x/placed.json"


def test_files_of_a_container_never_serve_a_run_without_one(desk: Desk) -> None:
    """Whoever has one of them open, in another container say, could change it after all checks."""
    digest = desk.take().digest
    inodes = {}
    for name, contained in (("first", True), ("second", False), ("third", True)):
        run = desk.root.run(name)
        os.makedirs(run.path)
        place(desk.root, digest, PROJECT, run, contained)
        inodes[name] = os.stat(os.path.join(run.work, "train.py")).st_ino
        if name == "first":
            held = open(os.path.join(run.work, "train.py"), "r+b")
            recycle(desk.root, digest, PROJECT, run, contained)
    held.write(b"print(2)")
    held.close()
    assert Path(desk.root.run("second").work, "train.py").read_text() == "print(1)\n"
    assert inodes["first"] != inodes["second"] and inodes["first"] == inodes["third"]


def test_closed_folders_are_removed_too(tmp_path: Path) -> None:
    """By the user who made them, who may be in a container and hostile."""
    tree = tmp_path / "tree"
    (tree / "closed" / "inner").mkdir(parents=True)
    (tree / "fixed" / "inner").mkdir(parents=True)
    (tree / "fixed" / "inner" / "file").touch()
    code = "import sys; from mlworkbench.remote.shared.tree import remove; remove(sys.argv[1])"
    words = [sys.executable, "-c", code, str(tree)]
    if os.geteuid() == 0:  # without the right to look into everything
        words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words]
    (tree / "closed").chmod(0)
    (tree / "fixed" / "inner").chmod(0o500)
    (tree / "fixed").chmod(0o400)
    tree.chmod(0)
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and not tree.exists(), done
