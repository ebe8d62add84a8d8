"""Runs in containers with podman, as root and with separate storage."""

from __future__ import annotations

import pytest

from tests.machines.programs import find

from .conftest import end_marked
from .container_targets import ContainerTarget, read

INIT = ["--init-path", find("tini") or "tini"]  # Debian's podman has no init program unless catatonit is installed


class PodmanTarget(ContainerTarget):
    """A container target whose `engine` is podman."""

    def __init__(self, folder, podman):
        super().__init__(folder, podman)
        self.env.update(podman.env)

    def run(self, run_id, script, **changes):
        settings = {
            "engine": "podman",
            "program": find("podman"),
            "socket": None,
            "options": INIT,
            **changes.pop("container", {}),
        }
        return super().run(run_id, script, container=settings, **changes)


@pytest.fixture
def podman_target(tmp_path, podman):
    podman.socket = None
    yield PodmanTarget(tmp_path, podman)
    end_marked(tmp_path)


@pytest.mark.parametrize("code", [0, 7, 127])
def test_life(podman_target, code):
    folder = podman_target.run("r", f"import os\nprint('hello', os.environ['WORD'])\nos._exit({code})")
    podman_target.start("r", message={"secrets": {"WORD": "w"}})
    ending = podman_target.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed" if code else "succeeded", code), ending
    assert (folder / "log").read_text() == "hello w\n"
    assert podman_target.name("r") not in podman_target.engine.containers()


def test_cancel(podman_target):
    folder = podman_target.run("r", "import time; print('up'); time.sleep(1000)")
    podman_target.start("r")
    podman_target.up(folder)
    podman_target.call("cancel", "r", "me")
    assert podman_target.ended(folder)["ending"] == "cancelled"
    assert podman_target.name("r") not in podman_target.engine.containers()


def test_no_such_image(podman_target):
    folder = podman_target.run("r", "", container={"image": "localhost/none:1"})
    podman_target.start("r")
    ending = podman_target.ended(folder)
    assert ending["ending"] == "could not start"
    assert "localhost/none:1" in ending["cause"]
    assert read(folder / "build.log")
