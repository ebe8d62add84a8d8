"""The engine dies, restarts, or stays down: the log has no gap, and no wrong ending is recorded."""

from __future__ import annotations

import json

import pytest

from .conftest import alive, until
from .container_targets import read
from .test_container_death import go, kill, start, whole


def grows(folder):
    size = (folder / "log").stat().st_size
    until(lambda: (folder / "log").stat().st_size > size)


def test_engine_dies_and_comes_back_with_live_restore(target):
    target.engine.stop()
    target.engine.start(live_restore=True)
    folder = start(target)
    target.engine.kill()
    grows(folder)
    target.engine.start(live_restore=True)
    grows(folder)
    go(folder)
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)
    assert whole(folder)
    assert target.name("r") not in target.engine.containers()


def test_engine_dies_and_kills_the_container_when_it_comes_back(target):
    folder = start(target)
    target.engine.kill()
    grows(folder)
    target.engine.start()
    ending = target.ended(folder)
    assert ending["ending"] == "engine stopped it"
    assert ending["cause"] == "the engine was stopped or restarted and ended the container"
    assert whole(folder)
    assert target.name("r") not in target.engine.containers()


def test_engine_is_stopped_and_started(target):
    folder = start(target)
    target.engine.stop()
    target.engine.start()
    ending = target.ended(folder)
    assert ending["ending"] == "engine stopped it"
    assert whole(folder)
    assert target.name("r") not in target.engine.containers()


@pytest.mark.parametrize("code", [0, 7])
def test_script_ends_while_the_engine_is_down(target, code):
    target.engine.stop()
    target.engine.start(live_restore=True)
    folder = target.run(
        "r", f"import os, time\nprint('up')\nwhile not os.path.exists('go'): time.sleep(.01)\nos._exit({code})"
    )
    target.start("r")
    target.up(folder)
    target.engine.kill()
    go(folder)
    until(lambda: not _inside(folder))
    assert not (folder / "exit.json").exists()
    target.engine.start(live_restore=True)
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed" if code else "succeeded", code)


def _inside(folder):
    from .conftest import marked

    return marked(folder)


def test_cancel_while_the_engine_is_down(target):
    """The supervisor can kill the script directly. The container is removed when the engine is back."""
    folder = start(target)
    until(lambda: (folder / "inside.json").exists())  # before that, only the engine knows the PID of the script
    target.engine.kill()
    target.call("cancel", "r", "me", "60")  # signals are slow while the engine does not respond
    ending = target.ended(folder)
    assert ending["ending"] == "cancelled"
    assert _inside(folder) == []
    target.engine.start()
    until(lambda: target.name("r") not in target.engine.containers())


def test_everything_dies_and_the_engine_too(target):
    folder = start(target)
    target.engine.kill()
    for pid in (target.event(folder, "accepted")["pid"], target.launcher(folder)):
        kill(pid)
    target.call("adopt", "r")
    grows(folder)
    target.engine.start()
    ending = target.ended(folder)
    assert ending["ending"] == "engine stopped it"


def test_engine_dies_while_it_makes_the_container(target):
    folder = target.run("r", "open('starts', 'a').write('x'); import time; time.sleep(0.1)")
    target.start("r")
    until(lambda: (folder / "container.json").exists())
    target.engine.kill()
    until(lambda: (folder / "exit.json").exists() or (folder / "started.json").exists())
    target.engine.start()
    ending = target.ended(folder)
    starts = len(read(folder / "work" / "starts"))
    assert (ending["ending"], starts) in [("could not start", 0), ("engine stopped it", 1), ("succeeded", 1)]
    assert target.name("r") not in target.engine.containers() or alive(json.loads(read(folder / "gate.json"))["pid"])
    until(lambda: target.name("r") not in target.engine.containers())


def test_an_engine_that_refuses_this_user_is_asked_once(target, tmp_path):
    """There is no container, so the run ends immediately and no process waits for one."""
    docker = tmp_path / "docker"
    refused = "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock"
    docker.write_text(f"#!/bin/sh\necho \"$1\" >>{tmp_path}/calls\necho '{refused}' >&2\nexit 126\n")
    docker.chmod(0o755)
    folder = target.run("r", "", container={"program": str(docker)})
    target.start("r")
    ending = target.ended(folder)
    assert ending["ending"] == "could not start" and "not allowed to use Docker" in ending["cause"], ending
    until(lambda: not alive(json.loads(read(folder / "gate.json"))["pid"]), 10)
    assert (tmp_path / "calls").read_text() == "run\n"
