"""The same with podman, as root and with a storage of its own."""

from __future__ import annotations

import pytest

from tests.machines.programs import find

from .conftest import end_marked
from .contained import Spot, read

INIT = ["--init-path", find("tini") or "tini"]  # Debian's podman comes without one, unless catatonit is installed


class PodmanSpot(Spot):
    """The `engine` of it is podman."""

    def __init__(self, folder, podman):
        super().__init__(folder, podman)
        self.env.update(podman.env)

    def run(self, run_id, script, **changes):
        own = {
            "engine": "podman",
            "program": find("podman"),
            "socket": None,
            "options": INIT,
            **changes.pop("container", {}),
        }
        return super().run(run_id, script, container=own, **changes)


@pytest.fixture
def ground(tmp_path, podman):
    podman.socket = None
    yield PodmanSpot(tmp_path, podman)
    end_marked(tmp_path)


@pytest.mark.parametrize("code", [0, 7, 127])
def test_life(ground, code):
    folder = ground.run("r", f"import os\nprint('hello', os.environ['WORD'])\nos._exit({code})")
    ground.start("r", message={"secrets": {"WORD": "w"}})
    told = ground.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed" if code else "succeeded", code), told
    assert (folder / "log").read_text() == "hello w\n"
    assert ground.name("r") not in ground.engine.containers()


def test_cancel(ground):
    folder = ground.run("r", "import time; print('up'); time.sleep(1000)")
    ground.start("r")
    ground.up(folder)
    ground.call("cancel", "r", "me")
    assert ground.ended(folder)["ending"] == "cancelled"
    assert ground.name("r") not in ground.engine.containers()


def test_no_such_image(ground):
    folder = ground.run("r", "", container={"image": "localhost/none:1"})
    ground.start("r")
    told = ground.ended(folder)
    assert told["ending"] == "could not start"
    assert "localhost/none:1" in told["cause"]
    assert read(folder / "build.log")
