"""Scripts that record a run without a submission."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench.history.history_api import History
from mlworkbench.history.run_query import Query
from mlworkbench.model import Run, Status
from tests.unit.history.test_store import paths
from tests.unit.remote.inrun.run_process import INRUN

SCRIPT = """
import mlworkbench, os, signal, sys
mlworkbench.log_params({"lr": 0.1})
mlworkbench.log("loss", 0.5)
mlworkbench.log("loss", 0.25)
mlworkbench.flush()
"""


def start(tmp_path: Path, more: str = "", cwd: Path | None = None) -> subprocess.Popen[bytes]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**kept, "MLW_HOME": str(tmp_path / "home"), "PYTHONPATH": str(INRUN)}
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + more)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, str(script), "--fast"], env=environment, cwd=cwd or tmp_path, **pipes)


def only_run(tmp_path: Path) -> Run:
    history = History(paths(tmp_path / "home"))
    try:
        (run,) = history.search(Query())
        assert history.get(run.id) == run
        return run
    finally:
        history.close()


def test_an_untracked_run_is_found_with_its_records(tmp_path):
    start(tmp_path).communicate()
    run = only_run(tmp_path)
    assert (run.status, run.spec.entry.name, run.spec.entry.arguments) == (Status.COMPLETED, "train.py", ("--fast",))
    assert (run.metrics, run.params, run.spans["loss"].length) == ({"loss": 0.25}, {"lr": 0.1}, 2)


def test_an_uncaught_exception_is_the_cause(tmp_path):
    start(tmp_path, "raise ValueError('boom')").communicate()
    run = only_run(tmp_path)
    assert (run.status, run.exit, run.cause) == (Status.FAILED, 1, "ValueError: boom")


def test_runs_of_one_process_have_names_and_ends(tmp_path):
    more = """
try:
    with mlworkbench.start_run(name="interrupted"):
        mlworkbench.log("loss", 0.1)
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
with mlworkbench.start_run(name="completed"):
    mlworkbench.log("loss", 0.2)
"""
    start(tmp_path, more).communicate()
    history = History(paths(tmp_path / "home"))
    runs = {run.name: run for run in history.search(Query())}
    history.close()
    assert {name: (run.status, run.metrics["loss"]) for name, run in runs.items()} == {
        None: (Status.COMPLETED, 0.25),
        "interrupted": (Status.CANCELED, 0.1),
        "completed": (Status.COMPLETED, 0.2),
    }
    assert runs["interrupted"].cause == "interrupted"


def test_status_while_running_and_after_a_kill(tmp_path):
    with start(tmp_path, "print('here', flush=True); sys.stdin.read()") as script:
        assert script.stdout and script.stdout.readline() == b"here\n"
        assert only_run(tmp_path).status is Status.RUNNING
        script.send_signal(signal.SIGKILL)
        script.communicate()
    run = only_run(tmp_path)
    assert (run.status, run.cause) == (Status.FAILED, "its process ended without reporting a result")


def test_the_run_belongs_to_the_enclosing_project(tmp_path):
    (tmp_path / "aml_config").mkdir()
    project = {"Id": "1b4e28ba-2fa1-4d2b-883f-0016d3cca427", "name": "demo"}
    (tmp_path / "aml_config" / "project.json").write_text(json.dumps(project))
    (tmp_path / "deep").mkdir()
    start(tmp_path, cwd=tmp_path / "deep").communicate()
    run = only_run(tmp_path)
    assert (run.spec.project_id, run.spec.project_name) == (project["Id"], "demo")


def test_a_forked_child_does_not_end_the_run(tmp_path):
    more = "pid = os.fork()\nif not pid: sys.exit(0)\nos.waitpid(pid, 0); print('here', flush=True); sys.stdin.read()"
    with start(tmp_path, more) as script:
        assert script.stdout and script.stdout.readline() == b"here\n"
        assert only_run(tmp_path).status is Status.RUNNING
        script.communicate()
    assert only_run(tmp_path).status is Status.COMPLETED


@pytest.mark.parametrize("content", ["", "[]", '{"id": 3}', '{"id": "local-20261115-171703-3fa9c1", "started": "x"}'])
def test_invalid_folders_are_ignored(tmp_path, content):
    start(tmp_path).communicate()
    odd = tmp_path / "home" / "local" / "local-20261115-171703-3fa9c1"
    odd.mkdir()
    (odd / "local.json").write_text(content)
    assert only_run(tmp_path).status is Status.COMPLETED


def test_the_run_survives_a_rebuild_and_can_be_removed(tmp_path):
    start(tmp_path).communicate()
    run = only_run(tmp_path)
    history = History(paths(tmp_path / "home"))
    history.rebuild()
    assert history.list() == [run]
    history.remove(run.id)
    assert history.list() == [] and not list((tmp_path / "home" / "local").iterdir())
    history.close()


def make_folder(tmp_path: Path, **facts: object) -> Path:
    """Create the folder of a script that ran on another machine."""
    name = "local-20261115-171703-3fa9c1"
    folder = tmp_path / "home" / "local" / name
    (folder / "metrics").mkdir(parents=True)
    data = {"id": name, "started": 1000.0, "pid": 1, "boot_id": "of another machine", **facts}
    (folder / "local.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("started", [1e300, float("nan"), -1.0])
def test_an_invalid_start_time_affects_no_other_run(tmp_path, started):
    make_folder(tmp_path, started=started)
    start(tmp_path).communicate()
    assert only_run(tmp_path).status is Status.COMPLETED


def test_a_run_on_another_machine_records_its_end(tmp_path):
    """Several machines may share the home folder, so a run whose end is unknown here may still be active elsewhere."""
    folder = make_folder(tmp_path)
    metrics = folder / "metrics" / "7-a"
    metrics.write_text('{"n": "loss", "v": 0.5, "t": 1000.5}\n')
    assert only_run(tmp_path).ending == "exit unknown"
    with open(metrics, "a") as file:
        file.write('{"n": "loss", "v": 0.25, "t": 1001.5}\n')
    (folder / "ended.json").write_text('{"ended": 1002.0, "status": "completed"}')
    run = only_run(tmp_path)
    assert (run.status, run.ended, run.metrics, run.spans["loss"].length) == (
        Status.COMPLETED,
        1002.0,
        {"loss": 0.25},
        2,
    )
