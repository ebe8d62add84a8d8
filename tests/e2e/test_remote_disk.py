"""A machine whose disk refuses writes when a run ends: what the user sees, and what is fetched afterwards."""

from __future__ import annotations

import pytest

from tests.e2e.remote_target import content
from tests.machines.network import wait_until


@pytest.mark.parametrize("kind", ["remote", "remotedocker"])
def test_temporarily_read_only_home(shared_target, kind):
    """Followers and status commands report what the run waits for; later the result is complete."""
    remote = shared_target(kind)
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    runs = str(remote.host.home / ".mlw" / "runs")
    following = remote.start("logs", "-f", run)
    remote.host.run("mount", "--bind", runs, runs)
    remote.host.run("mount", "-o", "remount,bind,ro", runs)
    remote.release()
    wait_until(lambda: b"k 19\n" in content(remote.target_folder(run) / "log"), "the last words of the script")
    message = f"result not saved yet: the file system of {remote.target_folder(run)} is read-only"
    wait_until(lambda: message in (remote.mlw("status", run).out), "the status to tell of it", 30)
    assert remote.ps()[0]["status"] == "Running"
    output = b""
    while message.encode() not in output:
        piece = following.stderr.read1()
        assert piece, output
        output += piece
    remote.host.run("umount", runs)
    following.communicate(timeout=90)
    assert following.returncode == 0
    remote.assert_complete(run, "k")
