"""Killing what is ours beside a container: at most one start, the log whole, the ending true, no container left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading

import pytest

from mlworkbench.remote import space
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.shared.machine import is_locked

from .conftest import alive, until
from .contained import read
from .test_death import LAUNCHER_STAGES, SLOW_STAGES, STARTED_STAGES, TICKS

WORD_STAGES = ["before-word", "word", "after-word", "after-exit"]
OBEYS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)))
print('up'); time.sleep(1000)
"""
IGNORES = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(['sh', '-c', 'trap "" TERM; while :; do sleep 0.2; done'], start_new_session=True)
print('up')
while True: time.sleep(1)
"""


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))


def go(folder):
    (folder / "work" / "go").write_text("")


def whole(folder):
    lines = (folder / "log").read_text().split()
    return lines == ["start", *map(str, range(len(lines) - 1))]


def start(spot):
    folder = spot.run("r", TICKS)
    spot.start("r")
    spot.up(folder, b"3\n")
    return folder


def test_supervisor_killed(spot):
    folder = start(spot)
    kill(spot.event(folder, "accepted")["pid"])
    assert spot.call("adopt", "r")["state"] == "adopted"
    go(folder)
    told = spot.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)
    assert whole(folder)
    assert spot.name("r") not in spot.engine.containers()


def test_launcher_killed(spot):
    folder = start(spot)
    kill(spot.launcher(folder))
    go(folder)
    told = spot.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)
    assert spot.name("r") not in spot.engine.containers()


@pytest.mark.parametrize("when", ["while it runs", "after its end"])
def test_both_killed(spot, when):
    """A plain process would end unseen; a container's exit code is kept by the engine."""
    folder = start(spot)
    for pid in (spot.event(folder, "accepted")["pid"], spot.launcher(folder)):
        kill(pid)
    if when == "after its end":
        go(folder)
        until(lambda: not spot.engine.inspect(spot.name("r"))["State"]["Running"])
    spot.call("adopt", "r")
    go(folder)
    told = spot.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)
    assert whole(folder)
    assert spot.name("r") not in spot.engine.containers()


@pytest.mark.parametrize("stage", [*SLOW_STAGES, *STARTED_STAGES, *LAUNCHER_STAGES, *WORD_STAGES])
def test_killed_at_a_stage(spot, stage):
    folder = spot.run("r", "open('starts', 'a').write('x')\nprint('hello')")
    spot.start("r", env={"MLW_FAILPOINT": f"{stage}:kill"})
    if spot.call("adopt", "r")["state"] == "unclaimed":
        spot.start("r", "n2")
    until(lambda: spot.call("adopt", "r")["state"] == "finished")
    told = spot.ended(folder)
    count = len(read(folder / "work" / "starts"))
    assert count <= 1
    if told["ending"] == "succeeded":
        assert (count, (folder / "log").read_text()) == (1, "hello\n")
    else:
        assert (told["ending"], count) == ("could not start", 0)
    if stage in [*STARTED_STAGES, "after-word", "after-start", "before-exit", "after-exit"]:
        assert told["ending"] == "succeeded"
    assert [e["kind"] for e in spot.events(folder)].count("finished") == 1
    until(lambda: spot.name("r") not in spot.engine.containers())
    assert not (folder / "word").exists()


def test_launcher_killed_while_the_engine_makes_the_container(spot):
    """What comes into being afterwards has no word to wait for, and does nothing."""
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2):
        run_id = f"r{int(delay * 100)}"
        folder = spot.run(run_id, "open('starts', 'a').write('x')")
        spot.start(run_id)
        until(lambda folder=folder: (folder / "gate.json").exists())
        threading.Event().wait(delay)
        os.kill(spot.launcher(folder), signal.SIGKILL)
        told = spot.ended(folder)
        count = len(read(folder / "work" / "starts"))
        assert (told["ending"], count) in [("could not start", 0), ("succeeded", 1)]
        assert len(read(folder / "work" / "starts")) == count


def test_cancel(spot):
    folder = spot.run("r", OBEYS)
    spot.start("r")
    spot.up(folder)
    spot.call("cancel", "r", "me")
    told = spot.ended(folder)
    assert (told["ending"], told["cause"]) == ("cancelled", "canceled by me")
    assert (folder / "log").read_text() == "up\nbye\n"
    assert spot.name("r") not in spot.engine.containers()


def test_cancel_of_one_that_ignores_it(spot):
    folder = spot.run("r", IGNORES)
    spot.start("r")
    spot.up(folder)
    spot.call("cancel", "r", "me", "0.5")
    assert spot.ended(folder)["ending"] == "cancelled (forced)"
    assert spot.name("r") not in spot.engine.containers()


def test_time_limit(spot):
    folder = spot.run("r", IGNORES, timeout=0.5, grace=0.3)
    spot.start("r")
    assert spot.ended(folder)["ending"] == "timeout"
    assert spot.name("r") not in spot.engine.containers()


def test_cancel_without_a_supervisor(spot):
    folder = start(spot)
    for pid in (spot.event(folder, "accepted")["pid"], spot.launcher(folder)):
        kill(pid)
    spot.call("cancel", "r")
    spot.call("adopt", "r")
    assert spot.ended(folder)["ending"] == "cancelled"
    assert spot.name("r") not in spot.engine.containers()


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.1, 0.2, 0.4])
def test_cancel_racing_with_the_start(spot, delay):
    folder = spot.run("r", "open('ran', 'w'); import time; time.sleep(1000)")
    thread = threading.Thread(target=spot.start, args=("r",))
    thread.start()
    threading.Event().wait(delay)
    spot.call("cancel", "r")
    thread.join()
    told = spot.ended(folder)
    assert told["ending"] == "cancelled"
    if told["cause"] == "canceled before it started":
        assert not (folder / "work" / "ran").exists()
    until(lambda: spot.name("r") not in spot.engine.containers())


def test_cancel_before_the_word_means_it_never_starts(spot):
    """Past the gate, and the engine is slow: what was cancelled before its first line does not begin."""
    folder = spot.run("r", "open('ran', 'w')")
    spot.start("r", env={"MLW_FAILPOINT": "after-gate:sleep=2"})
    until(lambda: (folder / "gate.json").exists())
    spot.call("cancel", "r")
    told = spot.ended(folder)
    assert (told["ending"], told["cause"]) == ("cancelled", "canceled before it started")
    assert not (folder / "work" / "ran").exists()
    assert spot.name("r") not in spot.engine.containers()


def test_reboot(spot):
    """The boot id on disk is not this boot's; the engine still has the dead container."""
    folder = start(spot)
    for pid in (spot.event(folder, "accepted")["pid"], spot.launcher(folder)):
        kill(pid)
    spot.engine.docker("kill", spot.name("r"))
    for path in (folder / "gate.json", folder / "claim" / "owner.json"):
        path.write_text(re.sub(r'"boot_id": "[^"]*"', '"boot_id": "an-earlier-boot"', path.read_text()))
    spot.call("adopt", "r")
    assert spot.ended(folder)["ending"] == "target rebooted"
    assert spot.name("r") not in spot.engine.containers()


def test_removed_while_nobody_watched(spot):
    folder = start(spot)
    for pid in (spot.event(folder, "accepted")["pid"], spot.launcher(folder)):
        kill(pid)
    spot.engine.docker("rm", "--force", spot.name("r"))
    spot.call("adopt", "r")
    told = spot.ended(folder)
    assert (told["ending"], told["exit"]) == ("engine stopped it", None)


def test_the_container_is_watched_with_docker_wait_where_processes_cannot_be_seen(spot):
    """In a process table of our own (a jump box in a container): the engine's pids mean nothing to us."""
    folder = spot.run("r", TICKS)
    words = [
        spot.python,
        "-I",
        "-S",
        f"{os.path.dirname(__import__('mlworkbench.remote').remote.__file__)}/__main__.py",
    ]
    inner = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", '"$@"; exec sleep 1000', "sh"]
        + [*words, "start", str(spot.root), "r", "n1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=spot.env,
    )
    try:
        inner.stdin.write(json.dumps({"secrets": {}}).encode())
        inner.stdin.close()
        spot.up(folder, b"3\n")
        go(folder)
        told = spot.ended(folder)
        assert (told["ending"], told["exit"]) == ("failed", 7)
    finally:
        inner.kill()
        inner.wait()


def test_clean_removes_a_container_that_was_left(spot):
    """The engine was down when the run ended, and nothing else knows of the container."""
    folder = spot.run("r", "print('done')")
    spot.start("r")
    spot.ended(folder)
    until(lambda: not is_locked(str(folder / "lock")))
    label = f"mlw.folder={folder}"
    spot.engine.docker("create", "--name", spot.name("r"), "--label", label, spot.engine.image, "true")
    (folder / "container.json").write_text(json.dumps({"name": spot.name("r"), "engine": "docker"}))
    freed = space.free(Root(str(spot.root)), {"what": ["runs"]})
    assert (freed["removed"]["runs"]["count"], freed["problems"]) == (1, [])
    assert spot.name("r") not in spot.engine.containers()
    assert not folder.exists()


def test_clean_keeps_a_run_whose_container_cannot_be_removed(spot, tmp_path):
    folder = spot.run("r", "print('done')")
    spot.start("r")
    spot.ended(folder)
    until(lambda: not is_locked(str(folder / "lock")))
    (folder / "container.json").write_text(json.dumps({"name": spot.name("r"), "engine": "docker"}))
    spec = json.loads((folder / "spec.json").read_text())
    spec["container"]["socket"] = str(tmp_path / "nobody-listens.sock")
    (folder / "spec.json").write_text(json.dumps(spec))
    freed = space.free(Root(str(spot.root)), {"what": ["runs"]})
    assert freed["removed"]["runs"]["count"] == 0
    assert "the engine does not respond" in freed["problems"][0]
    assert (folder / "log").exists()
