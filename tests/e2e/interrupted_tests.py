"""Tests that test_session_cleanup.py runs in sessions that fail or are ended early; they do not test the product."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.machines.browser import browser_session

READY = "LEFT_RUNNING_READY"  # variable with the path of the file that signals that everything has started


def test_interrupted_while_running(machine, laptop):
    """Start an engine with a container, a machine, and an mlw run, and keep them alive."""
    host = machine(docker="yes")
    host.engine.docker("run", "--detach", host.engine.image, "sleep", "8640001")
    project = laptop.project(train="import time\nprint('up', flush=True)\ntime.sleep(1000000)")
    run = laptop.start("submit", "-c", "local", "train.py", "8640002", cwd=project)
    while b"up" not in run.stdout.readline():
        assert run.poll() is None
    Path(os.environ[READY]).write_text(str(host.folder.parent))
    signal.pause()


def test_leaves_processes_and_mounts(tmp_path):
    subprocess.Popen(["setsid", "--fork", "sleep", "8640003"]).wait()
    (tmp_path / "mounted").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path / "mounted")], check=True)


def test_fails_with_evidence(machine, laptop, tmp_path):
    machine(docker="yes")
    with browser_session(laptop, laptop.project(), tmp_path):
        raise AssertionError("as it should")
