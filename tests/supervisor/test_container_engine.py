"""The engine dies, comes back, stays away: the log has no gap, and nobody is told a wrong ending."""

from __future__ import annotations

import json

import pytest

from .conftest import alive, until
from .contained import read
from .test_container_death import go, kill, start, whole


def grows(folder):
    size = (folder / "log").stat().st_size
    until(lambda: (folder / "log").stat().st_size > size)


def test_engine_dies_and_comes_back_with_live_restore(spot):
    spot.engine.stop()
    spot.engine.start(live_restore=True)
    folder = start(spot)
    spot.engine.kill()
    grows(folder)
    spot.engine.start(live_restore=True)
    grows(folder)
    go(folder)
    told = spot.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)
    assert whole(folder)
    assert spot.name("r") not in spot.engine.containers()


def test_engine_dies_and_kills_the_container_when_it_comes_back(spot):
    folder = start(spot)
    spot.engine.kill()
    grows(folder)
    spot.engine.start()
    told = spot.ended(folder)
    assert told["ending"] == "engine stopped it"
    assert told["cause"] == "the engine was stopped or restarted and ended the container"
    assert whole(folder)
    assert spot.name("r") not in spot.engine.containers()


def test_engine_is_stopped_and_started(spot):
    folder = start(spot)
    spot.engine.stop()
    spot.engine.start()
    told = spot.ended(folder)
    assert told["ending"] == "engine stopped it"
    assert whole(folder)
    assert spot.name("r") not in spot.engine.containers()


@pytest.mark.parametrize("code", [0, 7])
def test_script_ends_while_the_engine_is_down(spot, code):
    spot.engine.stop()
    spot.engine.start(live_restore=True)
    folder = spot.run(
        "r", f"import os, time\nprint('up')\nwhile not os.path.exists('go'): time.sleep(.01)\nos._exit({code})"
    )
    spot.start("r")
    spot.up(folder)
    spot.engine.kill()
    go(folder)
    until(lambda: not _inside(folder))
    assert not (folder / "exit.json").exists()
    spot.engine.start(live_restore=True)
    told = spot.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed" if code else "succeeded", code)


def _inside(folder):
    from .conftest import marked

    return marked(folder)


def test_cancel_while_the_engine_is_down(spot):
    """The script is within our own reach; the container goes when the engine is back."""
    folder = start(spot)
    until(lambda: (folder / "inside.json").exists())  # before, only the engine could tell which process it is
    spot.engine.kill()
    spot.call("cancel", "r", "me", "1")
    told = spot.ended(folder)
    assert told["ending"] == "cancelled"
    assert _inside(folder) == []
    spot.engine.start()
    until(lambda: spot.name("r") not in spot.engine.containers())


def test_everything_dies_and_the_engine_too(spot):
    folder = start(spot)
    spot.engine.kill()
    for pid in (spot.event(folder, "accepted")["pid"], spot.launcher(folder)):
        kill(pid)
    spot.call("adopt", "r")
    grows(folder)
    spot.engine.start()
    told = spot.ended(folder)
    assert told["ending"] == "engine stopped it"


def test_engine_dies_while_it_makes_the_container(spot):
    folder = spot.run("r", "open('starts', 'a').write('x'); import time; time.sleep(0.1)")
    spot.start("r")
    until(lambda: (folder / "container.json").exists())
    spot.engine.kill()
    until(lambda: (folder / "exit.json").exists() or (folder / "started.json").exists())
    spot.engine.start()
    told = spot.ended(folder)
    starts = len(read(folder / "work" / "starts"))
    assert (told["ending"], starts) in [("could not start", 0), ("engine stopped it", 1), ("succeeded", 1)]
    assert spot.name("r") not in spot.engine.containers() or alive(json.loads(read(folder / "gate.json"))["pid"])
    until(lambda: spot.name("r") not in spot.engine.containers())


def test_an_engine_that_refuses_this_user_is_asked_once(spot, tmp_path):
    """It made no container, so there is none to look for: the run ends at once, and no process stays."""
    docker = tmp_path / "docker"
    refused = "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock"
    docker.write_text(f"#!/bin/sh\necho \"$1\" >>{tmp_path}/calls\necho '{refused}' >&2\nexit 126\n")
    docker.chmod(0o755)
    folder = spot.run("r", "", container={"program": str(docker)})
    spot.start("r")
    told = spot.ended(folder)
    assert told["ending"] == "could not start" and "not allowed to use Docker" in told["cause"], told
    until(lambda: not alive(json.loads(read(folder / "gate.json"))["pid"]), 10)
    assert (tmp_path / "calls").read_text() == "run\n"
