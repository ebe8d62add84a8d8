"""Killing the supervisor and launcher of a container: at most one start, a complete log, the correct ending."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading

import pytest

from mlworkbench.remote import disk_usage
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.shared.machine import is_locked

from .conftest import alive, until
from .container_targets import read
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


def start(target):
    folder = target.run("r", TICKS)
    target.start("r")
    target.up(folder, b"3\n")
    return folder


def test_supervisor_killed(target):
    folder = start(target)
    kill(target.event(folder, "accepted")["pid"])
    assert target.call("adopt", "r")["state"] == "adopted"
    go(folder)
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)
    assert whole(folder)
    assert target.name("r") not in target.engine.containers()


def test_launcher_killed(target):
    folder = start(target)
    kill(target.launcher(folder))
    go(folder)
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)
    assert target.name("r") not in target.engine.containers()


@pytest.mark.parametrize("when", ["while it runs", "after its end"])
def test_both_killed(target, when):
    """The engine keeps the exit code of a container. The exit code of a plain process would be lost."""
    folder = start(target)
    for pid in (target.event(folder, "accepted")["pid"], target.launcher(folder)):
        kill(pid)
    if when == "after its end":
        go(folder)
        until(lambda: not target.engine.inspect(target.name("r"))["State"]["Running"])
    target.call("adopt", "r")
    go(folder)
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)
    assert whole(folder)
    assert target.name("r") not in target.engine.containers()


@pytest.mark.parametrize("stage", [*SLOW_STAGES, *STARTED_STAGES, *LAUNCHER_STAGES, *WORD_STAGES])
def test_killed_at_a_stage(target, stage):
    folder = target.run("r", "open('starts', 'a').write('x')\nprint('hello')")
    target.start("r", env={"MLW_FAILPOINT": f"{stage}:kill"})
    if target.call("adopt", "r")["state"] == "unclaimed":
        target.start("r", "n2")
    until(lambda: target.call("adopt", "r")["state"] == "finished")
    ending = target.ended(folder)
    count = len(read(folder / "work" / "starts"))
    assert count <= 1
    if ending["ending"] == "succeeded":
        assert (count, (folder / "log").read_text()) == (1, "hello\n")
    else:
        assert (ending["ending"], count) == ("could not start", 0)
    if stage in [*STARTED_STAGES, "after-word", "after-start", "before-exit", "after-exit"]:
        assert ending["ending"] == "succeeded"
    assert [e["kind"] for e in target.events(folder)].count("finished") == 1
    until(lambda: target.name("r") not in target.engine.containers())
    assert not (folder / "word").exists()


def test_launcher_killed_while_the_engine_makes_the_container(target):
    """A container that is created after the kill never receives the start message, so its script does not run."""
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2):
        run_id = f"r{int(delay * 100)}"
        folder = target.run(run_id, "open('starts', 'a').write('x')")
        target.start(run_id)
        until(lambda folder=folder: (folder / "gate.json").exists())
        threading.Event().wait(delay)
        os.kill(target.launcher(folder), signal.SIGKILL)
        ending = target.ended(folder)
        count = len(read(folder / "work" / "starts"))
        assert (ending["ending"], count) in [("could not start", 0), ("succeeded", 1)]
        assert len(read(folder / "work" / "starts")) == count


def test_cancel(target):
    folder = target.run("r", OBEYS)
    target.start("r")
    target.up(folder)
    target.call("cancel", "r", "me")
    ending = target.ended(folder)
    assert (ending["ending"], ending["cause"]) == ("cancelled", "canceled by me")
    assert (folder / "log").read_text() == "up\nbye\n"
    assert target.name("r") not in target.engine.containers()


def test_cancel_of_one_that_ignores_it(target):
    folder = target.run("r", IGNORES)
    target.start("r")
    target.up(folder)
    target.call("cancel", "r", "me", "0.5")
    assert target.ended(folder)["ending"] == "cancelled (forced)"
    assert target.name("r") not in target.engine.containers()


def test_time_limit(target):
    folder = target.run("r", IGNORES, timeout=0.5, grace=0.3)
    target.start("r")
    assert target.ended(folder)["ending"] == "timeout"
    assert target.name("r") not in target.engine.containers()


def test_cancel_without_a_supervisor(target):
    folder = start(target)
    for pid in (target.event(folder, "accepted")["pid"], target.launcher(folder)):
        kill(pid)
    target.call("cancel", "r")
    target.call("adopt", "r")
    assert target.ended(folder)["ending"] == "cancelled"
    assert target.name("r") not in target.engine.containers()


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.1, 0.2, 0.4])
def test_cancel_racing_with_the_start(target, delay):
    folder = target.run("r", "open('ran', 'w'); import time; time.sleep(1000)")
    thread = threading.Thread(target=target.start, args=("r",))
    thread.start()
    threading.Event().wait(delay)
    target.call("cancel", "r")
    thread.join()
    ending = target.ended(folder)
    assert ending["ending"] == "cancelled"
    if ending["cause"] == "canceled before it started":
        assert not (folder / "work" / "ran").exists()
    until(lambda: target.name("r") not in target.engine.containers())


def test_cancel_before_the_start_message_prevents_the_start(target):
    """The start decision is made, but the start message is delayed. A cancel at this point prevents the script."""
    folder = target.run("r", "open('ran', 'w')")
    target.start("r", env={"MLW_FAILPOINT": "after-gate:sleep=2"})
    until(lambda: (folder / "gate.json").exists())
    target.call("cancel", "r")
    ending = target.ended(folder)
    assert (ending["ending"], ending["cause"]) == ("cancelled", "canceled before it started")
    assert not (folder / "work" / "ran").exists()
    assert target.name("r") not in target.engine.containers()


def test_reboot(target):
    """Simulate a reboot: the recorded boot ID is not the current one, and the engine has a stopped container."""
    folder = start(target)
    for pid in (target.event(folder, "accepted")["pid"], target.launcher(folder)):
        kill(pid)
    target.engine.docker("kill", target.name("r"))
    for path in (folder / "gate.json", folder / "claim" / "owner.json"):
        path.write_text(re.sub(r'"boot_id": "[^"]*"', '"boot_id": "an-earlier-boot"', path.read_text()))
    target.call("adopt", "r")
    assert target.ended(folder)["ending"] == "target rebooted"
    assert target.name("r") not in target.engine.containers()


def test_container_removed_without_a_supervisor(target):
    folder = start(target)
    for pid in (target.event(folder, "accepted")["pid"], target.launcher(folder)):
        kill(pid)
    target.engine.docker("rm", "--force", target.name("r"))
    target.call("adopt", "r")
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("engine stopped it", None)


def test_the_container_is_watched_with_docker_wait_where_processes_cannot_be_seen(target):
    """In a separate PID namespace (a jump box in a container), the engine's PIDs are meaningless."""
    folder = target.run("r", TICKS)
    command = [
        target.python,
        "-I",
        "-S",
        f"{os.path.dirname(__import__('mlworkbench.remote').remote.__file__)}/__main__.py",
    ]
    inner = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", '"$@"; exec sleep 1000', "sh"]
        + [*command, "start", str(target.root), "r", "n1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=target.env,
    )
    try:
        inner.stdin.write(json.dumps({"secrets": {}}).encode())
        inner.stdin.close()
        target.up(folder, b"3\n")
        go(folder)
        ending = target.ended(folder)
        assert (ending["ending"], ending["exit"]) == ("failed", 7)
    finally:
        inner.kill()
        inner.wait()


def test_clean_removes_a_container_that_was_left(target):
    """Simulate an engine that was down when the run ended: container.json refers to a container that still exists."""
    folder = target.run("r", "print('done')")
    target.start("r")
    target.ended(folder)
    until(lambda: not is_locked(str(folder / "lock")))
    label = f"mlw.folder={folder}"
    target.engine.docker("create", "--name", target.name("r"), "--label", label, target.engine.image, "true")
    (folder / "container.json").write_text(json.dumps({"name": target.name("r"), "engine": "docker"}))
    freed = disk_usage.free_space(Root(str(target.root)), {"what": ["runs"]})
    assert (freed["removed"]["runs"]["count"], freed["problems"]) == (1, [])
    assert target.name("r") not in target.engine.containers()
    assert not folder.exists()


def test_clean_keeps_a_run_whose_container_cannot_be_removed(target, tmp_path):
    folder = target.run("r", "print('done')")
    target.start("r")
    target.ended(folder)
    until(lambda: not is_locked(str(folder / "lock")))
    (folder / "container.json").write_text(json.dumps({"name": target.name("r"), "engine": "docker"}))
    spec = json.loads((folder / "spec.json").read_text())
    spec["container"]["socket"] = str(tmp_path / "nobody-listens.sock")
    (folder / "spec.json").write_text(json.dumps(spec))
    freed = disk_usage.free_space(Root(str(target.root)), {"what": ["runs"]})
    assert freed["removed"]["runs"]["count"] == 0
    assert "the engine does not respond" in freed["problems"][0]
    assert (folder / "log").exists()
