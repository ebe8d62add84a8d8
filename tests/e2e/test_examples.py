"""Run the tests of the plugins in examples/ as their authors do: with mlworkbench.testing only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import end_processes, need
from tests.e2e.example_plugins import EXAMPLES, install
from tests.machines.pages import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-a-plugin.md"
TESTS = sorted(EXAMPLES.glob("*/test_*.py"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.parent.name)
def test_example_tests_pass(path, tmp_path):
    env = install(path.parent.name, tmp_path / "plugin")
    shutil.copy(path, tmp_path / path.name)
    run_tests(tmp_path, env)


def test_tests_on_page_pass(tmp_path):
    need("cc")
    files = {block.file: block.text for block in blocks(PAGE.read_text()) if block.text.startswith("# ")}
    assert len(files) == 5
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    run_tests(tmp_path, {"PYTHONPATH": str(tmp_path)})


def test_page_shows_tests_of_example():
    assert (EXAMPLES / "mlw-profiled" / "test_mlw_profiled.py").read_text() in PAGE.read_text()


def run_tests(folder: Path, more: dict[str, str]) -> None:
    """Run the tests outside the repository, where they cannot use its conftest.py or its package `tests`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "--basetemp",
        folder / "t",
        *folder.glob("test_*.py"),
    ]
    try:
        done = subprocess.run(command, cwd=folder, env={**env, **more}, capture_output=True, text=True, timeout=240)
    finally:
        end_processes(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout and "skipped" not in done.stdout
