"""No tests of the product: tests/e2e/test_session.py runs these in sessions that fail or are ended in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.machines.browser import looking

READY = "LEFT_RUNNING_READY"  # variable: the file that says that all has been started


def test_that_is_ended_in_the_middle(machine, laptop):
    """An engine with a container, a machine, and a run of mlw, all alive."""
    host = machine(docker="yes")
    host.engine.docker("run", "--detach", host.engine.image, "sleep", "8640001")
    project = laptop.project(train="import time\nprint('up', flush=True)\ntime.sleep(1000000)")
    run = laptop.start("submit", "-c", "local", "train.py", "8640002", cwd=project)
    while b"up" not in run.stdout.readline():
        assert run.poll() is None
    Path(os.environ[READY]).write_text(str(host.folder.parent))
    signal.pause()


def test_that_leaves_things_behind(tmp_path):
    subprocess.Popen(["setsid", "--fork", "sleep", "8640003"]).wait()
    (tmp_path / "mounted").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path / "mounted")], check=True)


def test_that_fails(machine, laptop, tmp_path):
    machine(docker="yes")
    with looking(laptop, laptop.project(), tmp_path):
        raise AssertionError("as it should")
