"""Checkpoints that travel to another machine arrive there as they were."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlworkbench import checkpoint_upload
from mlworkbench.checkpoint_upload import CheckpointStore, plan_checkpoints
from mlworkbench.errors import UsageError
from mlworkbench.paths import UserPaths
from mlworkbench.remote.checkpoints import NoCheckpoints, prepare_checkpoints
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.shared.snapshot_manifest import read_manifest

DAY = 86400 * 10**9


@pytest.fixture
def folder(tmp_path):
    """Return a folder with checkpoints of other modes than project files have; the first one is the newest."""
    folder = tmp_path / "checkpoints"
    for number, (name, mode) in enumerate([("a/last", 0o600), ("b/first", 0o664), ("outputs/x", 0o700)]):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
        for path in (folder / name, (folder / name).parent):
            os.utime(path, ns=((9 - number) * DAY + 1, (9 - number) * DAY + 1))
    (folder / "newest").symlink_to("a/last")
    return folder


@pytest.fixture
def target(tmp_path):
    root = Root(str(tmp_path / "target"))
    os.makedirs(root.run("new").path)
    os.makedirs(root.snapshots)
    return root


def upload(folder, root):
    with CheckpointStore(str(folder)) as store:
        manifest = Path(store.snapshot(store.digest))
        Path(root.snapshot(store.digest)).write_bytes(manifest.read_bytes())
        for _, sha256, _, _ in read_manifest(str(manifest), reserved="")["files"]:
            Path(root.blob(sha256)).parent.mkdir(parents=True, exist_ok=True)
            Path(root.blob(sha256)).write_bytes(Path(store.blob(sha256)).read_bytes())
        return {"resumed": "old", "checkpoints": store.digest}


def test_they_arrive_with_their_times(folder, target):
    beats = []
    spec = upload(folder, target)
    prepare_checkpoints(target, target.run("new"), spec, lambda: beats.append(1), lambda: False)
    placed = Path(target.run("new").checkpoints)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    assert sorted(path.relative_to(placed).as_posix() for path in placed.rglob("*")) == names
    times = {name: (folder / name).stat().st_mtime_ns for name in names}
    assert {name: (placed / name).stat().st_mtime_ns for name in names} == times
    assert [path.name for path in sorted(placed.glob("*/*"), key=os.path.getmtime)] == ["x", "first", "last"]
    assert [(placed / name).stat().st_mode & 0o777 for name in ("a/last", "outputs/x")] == [0o644, 0o755]
    assert len(beats) == 3


def test_a_cancel_ends_the_copy(folder, target):
    spec = upload(folder, target)
    with pytest.raises(NoCheckpoints, match="canceled while the checkpoints of run old were copied"):
        prepare_checkpoints(target, target.run("new"), spec, lambda: None, lambda: True)


@pytest.mark.parametrize("times", [[], {"nothing": 1}, {"newest": 1}, {"a/last": "1"}, {"a/last": 2**63}, {"../x": 1}])
def test_invalid_times_are_refused(folder, tmp_path, times):
    with CheckpointStore(str(folder)) as store:
        manifest = read_manifest(store.snapshot(store.digest), reserved="")
    path = tmp_path / "list"
    path.write_text(repr(dict(manifest, times=times)).replace("'", '"'))
    with pytest.raises(OSError, match="damaged"):
        read_manifest(str(path), reserved="")


def test_each_file_is_read_once(folder, monkeypatch):
    read = []
    digest = checkpoint_upload._digest
    monkeypatch.setattr(checkpoint_upload, "_digest", lambda path: read.append(path) or digest(path))
    first = CheckpointStore(str(folder)).digest
    assert CheckpointStore(str(folder)).digest == first
    assert len(read) == 3
    (folder / "a" / "last").write_text("changed")
    assert CheckpointStore(str(folder)).digest != first
    assert len(read) == 4


@pytest.mark.parametrize("dry_run", [False, True])
def test_problems_are_explained(tmp_path, dry_run):
    paths = UserPaths(tmp_path)
    run = SimpleNamespace(id="old", spec=SimpleNamespace(compute=SimpleNamespace(address=None, type="local")))
    target = SimpleNamespace(address="gpu1", username="ada", port=22, jump_host=None)

    def plan():
        with pytest.raises(UsageError) as caught:
            plan_checkpoints(run, target, paths, dry_run=dry_run)
        assert caught.value.more == "no-checkpoints"
        return caught.value.message, caught.value.hint

    assert plan() == ("--resume: run old has no checkpoints", None)
    folder = Path(paths.root.run("old").checkpoints)
    folder.mkdir(parents=True)
    (folder / "last").symlink_to("/data/last")
    link = f"--resume: {folder}/last is a link to /data/last, which cannot be sent"
    assert plan() == (link, "replace the link with a file")


def test_a_dry_run_reads_no_checkpoints(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_upload, "_digest", lambda path: pytest.fail(f"reads {path}"))
    paths = UserPaths(tmp_path)
    Path(paths.root.run("old").path).mkdir(parents=True)
    folder.rename(paths.root.run("old").checkpoints)
    run = SimpleNamespace(id="old", spec=SimpleNamespace(compute=SimpleNamespace(address=None, type="local")))
    target = SimpleNamespace(address="gpu1", username="ada", port=22, jump_host=None)
    assert plan_checkpoints(run, target, paths, dry_run=True) == ("old", None)
