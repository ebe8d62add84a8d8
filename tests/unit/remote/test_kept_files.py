"""Files outside of outputs/: what is collected and named, whatever the script left in its working copy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlworkbench.remote import kept_files
from mlworkbench.remote.kept_files import collect_kept, find_unkept
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.shared.snapshot_manifest import VERSION, write_record


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(str(tmp_path / "run"))
    os.makedirs(run.outputs)
    place(run)
    return run


def place(run: RunFolder, *files: str) -> None:
    """Record these files as the project's."""
    record = {"version": VERSION, "digest": "d", "files": {name: [0, 0, 0, 0] for name in files}}
    write_record(run.placed, record)


def write(run: RunFolder, *paths: str, size: int = 1) -> None:
    for path in paths:
        file = Path(run.work) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x" * size)


def collected(run: RunFolder) -> list[str]:
    root = Path(run.outputs)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir())


def test_kept_paths_move_to_outputs(run):
    write(run, "wandb/a/b", "deep/er/model.pt", "deep/other", "mlflow.db")
    assert collect_kept(run, ["wandb", "deep/er", "mlflow.db", "missing", "missing/too"]) == []
    assert collected(run) == ["deep/er/model.pt", "mlflow.db", "wandb/a/b"]
    assert collect_kept(run, ["wandb", "deep/er", "mlflow.db"]) == [], "after a restart of the supervisor"
    assert find_unkept(run) == ["deep/"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "a/../../secret", "outputs", "outputs/x", "", ".", "a/"])
def test_paths_outside_the_working_copy_are_refused(run, tmp_path, path):
    (tmp_path / "run" / "secret").write_text("secret")
    write(run, "a/x")
    assert collect_kept(run, [path]) == [f"{path}: not a path in the working copy"]
    assert collected(run) == [] and (tmp_path / "run" / "secret").exists()


def test_links_are_not_followed(run, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private").write_text("private")
    os.symlink(outside, os.path.join(run.work, "folder"))
    os.symlink(outside / "private", os.path.join(run.work, "file"))
    os.mkfifo(os.path.join(run.work, "pipe"))
    lines = collect_kept(run, ["folder", "file", "folder/private", "pipe"])
    assert lines[:2] == ["folder: a link", "file: a link"]
    assert lines[2].startswith("folder/private: not collected") and lines[3] == "pipe: not a file or folder"
    assert find_unkept(run) == [] and collected(run) == []
    assert os.listdir(outside) == ["private"]


def test_links_in_outputs_are_not_followed(run, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    write(run, "a/x", "b")
    os.symlink(outside, os.path.join(run.outputs, "a"))
    write(run, "outputs/b", size=5)
    first, second = collect_kept(run, ["a/x", "b"])
    assert first.startswith("a/x: not collected") and second == "b: outputs/ contains another file with this name"
    os.rename(run.outputs, run.work + "/old")
    os.symlink(outside, run.outputs)
    assert collect_kept(run, ["b"])[0].startswith("b: not collected")
    assert os.listdir(outside) == []


def test_files_of_the_project_are_not_named(run):
    place(run, "train.py", "data/old.csv")
    write(run, "train.py", "data/old.csv", "data/new.csv", "data/sub/x", "new/a/b", "outputs/y")
    write(run, "big.bin", size=100)
    assert find_unkept(run) == ["big.bin", "data/new.csv", "data/sub/", "new/"]


def test_caches_and_recorded_event_files_are_not_named(run):
    write(
        run,
        "__pycache__/a",
        "a.pyc",
        ".cache/x",
        "wandb-cache/x",
        "runs/a/events.out.tfevents.1",
        "spark-warehouse/x",
        "derby.log",
    )
    os.mkdir(os.path.join(run.work, "empty"))
    assert find_unkept(run) == []
    write(run, "runs/a/model.pt")
    assert find_unkept(run) == ["runs/"]


def test_search_is_limited(run, monkeypatch):
    write(run, *(f"f{number:03}" for number in range(50)), "line\nbreak", "x" * 201)
    assert len(find_unkept(run)) == kept_files.MAX_NAMED
    assert not any("\n" in name or len(name) > 200 for name in find_unkept(run))
    monkeypatch.setattr(kept_files, "MAX_ENTRIES", 5)
    assert len(find_unkept(run)) <= 5


@pytest.mark.parametrize("content", [None, "[]", '{"version": 1}', f'{{"version": {VERSION}, "files": []}}', "{"])
def test_damaged_record_names_nothing(run, content):
    write(run, "new")
    os.unlink(run.placed)
    if content is not None:
        Path(run.placed).write_text(content)
    assert find_unkept(run) == []


def test_missing_working_copy(run):
    os.rmdir(run.outputs)
    os.rmdir(run.work)
    assert collect_kept(run, ["a"]) == [] and find_unkept(run) == []
