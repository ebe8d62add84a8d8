"""Files that a script writes outside of outputs/: the summary names them, and ``Keep`` collects them."""

from __future__ import annotations

import os

import pytest

from tests.e2e.test_notebook import write_notebook
from tests.e2e.test_tracking import LocalTarget
from tests.machines.network import wait_until

LEAVE = """
import os
for path in ("hf_out/model.bin", "wandb/run-1/x.wandb", "lightning_logs/v0/checkpoints/a.ckpt", "mlflow.db",
             "lightning_logs/v0/events.out.tfevents.1", "runs/events.out.tfevents.1", "__pycache__/a.pyc",
             "data/new.csv", ".cache/x", "outputs/kept.txt"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "w").write("x" * (100 if path.startswith("hf_out") else 10))
open("data/old.csv", "a").write("changed")
os.symlink("/etc", "etc")
os.symlink("run-1", "wandb/latest-run")
"""


def keep(project, name, *paths):
    path = project / "aml_config" / f"{name}.runconfig"
    path.write_text(f"{path.read_text()}\nKeep: [{', '.join(paths)}]\n")


@pytest.fixture
def project(user):
    root = user.project("demo", train=LEAVE)
    (root / "data").mkdir()
    (root / "data" / "old.csv").write_text("old")
    return root


def test_files_outside_outputs_are_named(user, project):
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 0, done
    names = "hf_out/, data/new.csv, lightning_logs/, mlflow.db, wandb/"
    line = next(line for line in done.err.splitlines() if line.startswith("Not kept:"))
    assert line == f"Not kept:  {names}; to collect them, add to aml_config/local.runconfig: Keep: [{names}]"
    assert user.info(done.run)["unkept"] == names.split(", ")
    assert line.split(":", 1)[1].split(";")[0].strip() in user.mlw("show", done.run, cwd=project).out


def test_kept_files_are_outputs(user, project):
    keep(project, "local", "wandb/", "mlflow.db", "data/new.csv", "hf_out", "lightning_logs/v0", "missing/", "etc")
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 0, done
    assert "Not kept" not in done.err and "etc: a link" in done.err
    outputs = user.folder(done.run) / "work" / "outputs"
    assert sorted(os.listdir(outputs)) == ["data", "hf_out", "kept.txt", "lightning_logs", "mlflow.db", "wandb"]
    assert os.listdir(outputs / "data") == ["new.csv"]
    assert os.readlink(outputs / "wandb" / "latest-run") == "run-1"
    assert user.info(done.run)["outputs"] == 8


def test_kept_files_of_a_notebook_are_downloaded(shared_target):
    """Also a test of notebooks on another machine."""
    target = shared_target()
    cells = LEAVE.replace("data/", "outputs/"), "import sys\nsys.argv[1] + ' on the target'"
    write_notebook(target.project / "explore.ipynb", *cells)
    keep(target.project, target.name, "wandb", "lightning_logs/")
    done = target.submit("explore.ipynb", "ran")
    assert done.code == 0 and "'ran on the target'" in done.out, done
    outputs = target.laptop.folder(done.run) / "work" / "outputs"
    assert (outputs / "lightning_logs" / "v0" / "checkpoints" / "a.ckpt").read_text() == "x" * 10
    assert (outputs / "wandb" / "run-1" / "x.wandb").exists()
    assert "Not kept:  hf_out/, mlflow.db; to collect them" in done.err


OUTSIDE = """
import os, time
home = os.path.expanduser("~")
os.makedirs(home + "/tb")
with open(home + "/tb/events.out.tfevents.1", "w"):
    while not os.path.exists(home + "/go"):
        time.sleep(0.01)
"""


def test_data_outside_of_the_working_copy_is_named(laptop):
    target = LocalTarget(laptop, "local")
    (target.project / "train.py").write_text(OUTSIDE)
    run = target.detach("train.py")
    samples = laptop.folder(run) / "effort.jsonl"  # files are examined with each sample
    wait_until(lambda: samples.exists() and samples.read_bytes().count(b"\n") >= 2, "two samples", 60)
    target.release()
    done = target.mlw("logs", "-f", run)
    assert done.code == 0, done
    problem = "TensorBoard data outside of the working copy, not recorded and not kept; write to outputs/ instead"
    (line,) = [line for line in done.err.splitlines() if line.startswith("Skipped:")]
    assert line.split(None, 1)[1] == f"{laptop.home}/tb: {problem}"
    assert laptop.info(run)["left_out"] == [f"{laptop.home}/tb: {problem}"]
