"""Packages of an existing Python are listed by a separate process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.remote.companions.package_recorder import PackageRecorder
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.runfiles.script_records import read_packages


def spec(tmp_path: Path, **changes: Any) -> Any:
    lock = {"kind": "existing", "python": sys.executable, "version": "3.11"}
    environment = {"PYTHONPATH": str(tmp_path / "site"), "MLW_RUN_FOLDER": str(tmp_path)}
    return {"lock": lock, "inherit": ["PATH"], "environment": environment, **changes}


@pytest.fixture
def run(tmp_path):
    for name in ("My_Package-1.0.dist-info", "old-2.0-py3.8.egg-info", "mlworkbench_inrun-1.dist-info", "other"):
        (tmp_path / "site" / name).mkdir(parents=True)
    run = RunFolder(str(tmp_path / "run"))
    os.makedirs(run.metrics)
    return run


def wait(recorder):
    """Wait until the process has listed the packages, as the supervisor does."""
    assert recorder.pid is not None and os.waitpid(recorder.pid, 0)[1] == 0


def test_packages_are_recorded(run, tmp_path):
    recorder = PackageRecorder(run, spec(tmp_path))
    recorder.tick(None)
    assert recorder.pid is None, "the script has not started"
    recorder.tick({"pid": 1})
    recorder.end({"pid": 1})
    wait(recorder)
    packages = dict(read_packages(run))
    assert (packages["My-Package"], packages["old"]) == ("1.0", "2.0")
    assert "pytest" in packages and "mlworkbench-inrun" not in packages


def test_script_that_was_faster_than_the_first_check(run, tmp_path):
    recorder = PackageRecorder(run, spec(tmp_path))
    recorder.end({"pid": 1})
    wait(recorder)
    assert os.listdir(run.path) == ["metrics"] and read_packages(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"lock": {"kind": "managed"}},
        {"lock": None},
        {"container": {"image": "x"}},
        {"environment": {"MLW_TRACKING": "off"}},
    ],
)
def test_other_environments_are_not_listed(run, tmp_path, changes):
    recorder = PackageRecorder(run, spec(tmp_path, **changes))
    recorder.end({"pid": 1})
    assert recorder.pid is None


@pytest.mark.parametrize(
    "line", [b"", b"{", b'{"k":"packages"}', b'{"k":"packages","d":{"packages":[7,["a"],["b",1],{}]}}', b"[" * 90_000]
)
def test_damaged_list(run, line):
    Path(run.packages).write_bytes(line)
    assert read_packages(run) == []
