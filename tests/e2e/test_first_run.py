"""The basic user story: from an empty home to a finished run with metrics and outputs in the history."""

from __future__ import annotations

import hashlib
import json

import pytest

pytestmark = pytest.mark.installed


def test_first_run_from_empty_home(user):
    created = user.mlw("project", "create", "--name", "demo")
    assert created.code == 0, created
    project = user.home / "demo"
    for name in ("local.compute", "local.runconfig", "docker.compute", "conda_dependencies.yml"):
        assert (project / "aml_config" / name).is_file()

    done = user.mlw("experiment", "submit", "-c", "local", "train.py", "--epochs", "5", cwd=project)
    assert done.code == 0, done
    assert "epoch" in done.out
    assert "Status:    Completed" in done.err
    assert "accuracy" in done.err
    assert "loss.svg" in done.err

    record = user.info(done.run)
    assert (record["status"], record["ending"], record["exit_code"]) == ("Completed", "succeeded", 0)
    assert record["script_name"] == "train.py"
    assert record["arguments"] == ["--epochs", "5"]
    assert 0.5 < record["accuracy"] <= 1
    folder = user.folder(done.run)
    assert (folder / "log").read_bytes() == done.stdout
    for output in json.loads((folder / "outputs.json").read_text())["outputs"]:
        content = (folder / "work" / "outputs" / output["path"]).read_bytes()
        assert output["sha256"] == hashlib.sha256(content).hexdigest()
        assert output["size"] == len(content) > 0
    assert not (project / "outputs").exists(), "the run must not write into the project"

    listed = user.mlw("history", "list", cwd=project)
    assert done.run in listed.out
    logs = user.mlw("logs", done.run[:-2], cwd=project)
    assert logs.stdout == done.stdout
