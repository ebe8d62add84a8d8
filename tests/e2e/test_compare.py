"""``history compare``, the filters of ``history list``, and ``history info -a``."""

from __future__ import annotations

import json
import os

import pytest

TRAIN = """
import argparse, os
from mlworkbench import log
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
lr = parser.parse_args().lr
log("accuracy", 1 - lr)
print("hello", lr)
os.makedirs("outputs/deep")
open("outputs/deep/a.txt", "w").write("text of %s\\n" % lr)
os.symlink("/etc/passwd", "outputs/link")
os.symlink("/etc", "outputs/folder")
os.mkfifo("outputs/fifo")
"""


@pytest.fixture
def two_runs(user):
    project = user.project("demo", train=TRAIN, gone="1\n")
    first = user.mlw("submit", "train.py", "--lr", "0.1", cwd=project)
    assert first.code == 0, first
    (project / "train.py").write_text(TRAIN.replace('print("hello", lr)', 'print("\x1b[31mgood day", lr)'))
    (project / "gone.py").unlink()
    (project / "new.bin").write_bytes(b"\0\1")
    second = user.mlw("submit", "--tag", "best", "train.py", "--lr", "0.01", cwd=project)
    assert second.code == 0, second
    return user, project, first.run, second.run


def test_compare(two_runs):
    user, project, first, second = two_runs
    done = user.mlw("history", "compare", first, second, "-o", "json", cwd=project)
    assert done.code == 0, done
    facts = json.loads(done.out)
    assert facts["runs"] == [first, second]
    assert facts["parameters"] == {"lr": ["0.1", "0.01"]}
    assert facts["metrics"] == {"accuracy": [0.9, 0.99]}
    assert "SnapshotId" in facts["properties"] and "status" not in facts["properties"]
    assert facts["properties"]["tags"] == [None, ["best"]]
    files = {file["path"]: file["change"] for file in facts["code"][0]["files"]}
    assert files == {"train.py": "changed", "gone.py": "removed", "new.bin": "added"}
    diff = facts["code"][0]["diff"]
    assert '-print("hello", lr)' in diff and '+print("\x1b[31mgood day", lr)' in diff
    assert "-1" in diff
    text = user.mlw("history", "compare", first, second, cwd=project)
    assert "\x1b" not in text.out
    assert '+print("^[[31mgood day", lr)' in text.out
    assert "(not shown: binary" in text.out
    names = user.mlw("history", "compare", "--files", first, second, cwd=project)
    assert "changed  train.py" in names.out and "good day" not in names.out


def test_compare_with_itself_and_with_too_few_runs(two_runs):
    user, project, first, _ = two_runs
    same = user.mlw("history", "compare", first, first, cwd=project)
    assert (same.code, same.out) == (0, "")
    assert "no differences" in same.err
    assert user.mlw("history", "compare", first, cwd=project).code == 2


def test_compare_without_the_code(two_runs):
    user, project, first, second = two_runs
    for path in (user.store / "snapshots").iterdir():
        path.unlink()
    done = user.mlw("history", "compare", first, second, cwd=project)
    assert done.code == 0
    assert "no longer available" in done.err


def test_list_filters(two_runs):
    user, project, first, second = two_runs

    def listed(*arguments):
        done = user.mlw("history", "list", "--query", "[].run_id", "-o", "tsv", *arguments, cwd=project)
        assert done.code == 0, done
        return done.out.split()

    assert listed() == [second, first]
    assert listed("--where", "accuracy > 0.95 and lr < 0.05 and status = 'Completed'") == [second]
    assert listed("--sort", "accuracy") == [first, second]
    assert listed("--sort", "-accuracy", "-n", "1") == [second]
    assert listed("--tag", "best") == [second]
    assert listed("--status", "completed", "--target", "local", "--script", "train.py") == [second, first]
    assert listed("--status", "Failed") == []
    assert listed("--since", "1h") == [second, first]
    assert listed("--since", "2999-01-01") == []
    wrong = user.mlw("history", "list", "--where", "accuracy >", cwd=project)
    assert wrong.code == 2 and "position 11" in wrong.err
    assert user.mlw("history", "list", "--status", "Fnished", cwd=project).code == 66
    assert user.mlw("history", "list", "--since", "soon", cwd=project).code == 2


def test_artifacts(two_runs):
    user, project, first, _ = two_runs

    def artifact(path):
        return user.mlw("history", "info", "-r", first, "-a", path, cwd=project)

    assert artifact("driver_log").out == "hello 0.1\n"
    assert artifact("outputs/deep/a.txt").out == artifact("deep/a.txt").out == "text of 0.1\n"
    for path in ("link", "folder/passwd", "fifo", "deep", "../../spec.json", "/etc/passwd", "", "none"):
        done = artifact(path)
        assert done.code in (66, 74), (path, done)
        assert done.out == ""
    assert "deep/a.txt" in artifact("none").err


def test_artifact_of_run_without_outputs(two_runs):
    user, project, first, _ = two_runs
    os.rename(user.folder(first) / "work", user.folder(first) / "moved")
    assert user.mlw("history", "info", first, "-a", "deep/a.txt", cwd=project).code == 66
