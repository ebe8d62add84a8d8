"""A test session (`python -m tests`, as in `make test`) leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import interrupted_tests
from tests.machines.network import wait_until
from tests.machines.programs import need_all

ROOT = Path(__file__).parents[2]
FILE = Path(interrupted_tests.__file__)


@pytest.fixture
def ready(tmp_path):
    need_all("unshare", "dockerd")
    return tmp_path / "ready"


def start(ready: Path, test: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a session in its own process group, as make and shells do."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    argv = [sys.executable, "-m", "tests", "-p", "no:cacheprovider", f"{FILE}::{test}", *arguments]
    return subprocess.Popen(
        argv,
        cwd=ROOT,
        env={**env, interrupted_tests.READY: str(ready), "TMPDIR": "/tmp"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def commands() -> str:
    """Return the command lines of all processes that this session can see."""
    return subprocess.run(["ps", "-eww", "-o", "args="], capture_output=True, text=True, check=True).stdout


def test_leftover_processes_are_reported_and_ended(ready):
    session = start(ready, "test_leaves_processes_and_mounts")
    printed = session.communicate(timeout=120)[0].decode()
    assert session.returncode == 1, printed
    assert "1 passed" in printed
    assert "left behind: processes: sleep 8640003" in printed
    assert "left behind: mounts: " in printed and "/mounted" in printed
    assert "sleep 8640003" not in commands()


def test_failed_test_saves_evidence(ready):
    """The evidence folder contains logs of the engine, sshd, and the server, and a screenshot of the page."""
    printed = start(ready, "test_fails_with_evidence").communicate(timeout=120)[0].decode()
    assert "1 failed" in printed and "left behind" not in printed, printed
    folder = Path(re.findall(r"^/.*/build/evidence/.*", printed, re.MULTILINE)[0])
    kept = {path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_size}
    assert kept >= {"log", "sshd.log", "processes.txt", "ui-0.txt", "failed.png", "failed.html"}
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("number", "arguments"),
    [
        pytest.param(signal.SIGINT, (), id="SIGINT-no-workers"),
        pytest.param(signal.SIGINT, ("-n", "1"), id="SIGINT"),
        pytest.param(signal.SIGTERM, ("-n", "1"), id="SIGTERM"),
        pytest.param(signal.SIGKILL, ("-n", "1"), id="SIGKILL"),
    ],
)
def test_interrupted_session_cleans_up(ready, number, arguments):
    """Ctrl-C reaches all processes of the terminal; `kill` reaches only the first one."""
    session = start(ready, "test_interrupted_while_running", *arguments)
    wait_until(lambda: ready.exists() and ready.read_text() or session.poll() is not None, "the start of all", 120)
    assert session.poll() is None, session.communicate()[0].decode()
    place = Path(ready.read_text())
    assert "sleep 8640001" in commands() and "8640002" in commands()
    (os.killpg if number == signal.SIGINT else os.kill)(session.pid, number)
    printed = session.communicate(timeout=120)[0].decode()
    wait_until(lambda: "sleep 8640001" not in commands() and "8640002" not in commands(), "the end of its processes")
    if number == signal.SIGKILL:  # a killed session cannot remove its files: the next session does
        assert place.exists()
        start(ready, "no_such_test").communicate(timeout=120)
    assert "left behind" not in printed
    assert not place.exists() and not Path("/tmp", f"mlwt-{session.pid}").exists()
    assert not Path("/sys/class/net", f"mlw{place.name}").exists()
    assert not list(Path("/sys/fs").glob(f"cgroup/**/mlw-machines-{place.name}"))
