"""A machine whose disk refuses writes when a run ends there: what its user sees, and what is home afterwards."""

from __future__ import annotations

import pytest

from tests.e2e.elsewhere import content
from tests.machines.network import wait_until


@pytest.mark.parametrize("kind", ["remote", "remotedocker"])
def test_a_home_that_is_read_only_for_a_while(shared_target, kind):
    """Whoever follows the run, or asks, learns what it waits for; then all of it is there."""
    away = shared_target(kind)
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    runs = str(away.host.home / ".mlw" / "runs")
    following = away.start("logs", "-f", run)
    away.host.run("mount", "--bind", runs, runs)
    away.host.run("mount", "-o", "remount,bind,ro", runs)
    away.let_go()
    wait_until(lambda: b"k 19\n" in content(away.there(run) / "log"), "the last words of the script")
    words = f"result not saved yet: the file system of {away.there(run)} is read-only"
    wait_until(lambda: words in (away.mlw("status", run).out), "the status to tell of it", 30)
    assert away.ps()[0]["status"] == "Running"
    told = b""
    while words.encode() not in told:
        piece = following.stderr.read1()
        assert piece, told
        told += piece
    away.host.run("umount", runs)
    following.communicate(timeout=90)
    assert following.returncode == 0
    away.must_be_whole(run, "k")
