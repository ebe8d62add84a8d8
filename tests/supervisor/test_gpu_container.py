"""Containers with GPUs: the real engine, given a hook that does nothing, and GPUs that are not there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.engine import Engine

from .conftest import until
from .contained import read
from .gpu_hosts import GIB, GpuHost

UNTIL_TOLD = "import os, time\nprint('up', os.environ.get('CUDA_VISIBLE_DEVICES'))\n"
UNTIL_TOLD += "while not os.path.exists('stop'): time.sleep(0.02)\n"


class Ship:
    """The target of the container tests, with GPUs."""

    def __init__(self, spot: Any, host: GpuHost) -> None:
        self.spot, self.host = spot, host
        spot.env, spot.program = host.env, host.program

    @property
    def engine(self) -> Engine:
        found: Engine = self.spot.engine
        return found


@pytest.fixture
def ship(spot, tmp_path):
    return Ship(spot, GpuHost(tmp_path, 2))


@pytest.fixture
def with_toolkit(ship):
    ship.engine.stop()
    ship.engine.start(gpus=True)


@pytest.mark.usefixtures("with_toolkit")
def test_a_container_gets_the_gpu_that_is_free_and_its_processes_are_known(ship):
    """The first is a stranger's; which one it will be is decided when its turn has come."""
    first, second = ship.host.uuids
    ship.host.gpus.change(first, process=[("compute", 1, 8 * GIB)])
    folder = ship.spot.run("r", UNTIL_TOLD, gpus="free", container={"gpus": ["all"]})
    ship.spot.start("r")
    ship.spot.up(folder)
    made = ship.engine.inspect(ship.spot.name("r"))
    assert [one["DeviceIDs"] for one in made["HostConfig"]["DeviceRequests"]] == [[second]]
    assert read(folder / "log") == f"up {second}\n".encode()
    ship.host.gpus.change(second, process=[("compute", made["State"]["Pid"], 2 * GIB)], utilisation=70)
    until(lambda: b'"own":%d' % (2 * GIB) in read(folder / "gpu.jsonl"))
    (folder / "work" / "stop").touch()
    told = ship.spot.ended(folder)
    assert told["ending"] == "succeeded"
    assert told["gpu"]["used"] == "yes", told["gpu"]


def test_without_the_toolkit_the_cause_is_named(ship):
    folder = ship.spot.run("r", "print('never')", gpus="1", container={"gpus": ["all"]})
    ship.spot.start("r")
    told = ship.spot.ended(folder)
    assert told["ending"] == "could not start"
    assert told["gpu"]["used"] == "no"
    assert "Container Toolkit is missing" in told["gpu"]["diagnosis"]["cause"]
    assert "nvidia-ctk" in told["gpu"]["diagnosis"]["remedy"]


def test_a_container_without_gpus_on_a_machine_that_has_some(ship):
    folder = ship.spot.run("r", "print('Found no NVIDIA driver on your system.')\n" + UNTIL_TOLD)
    ship.spot.start("r")
    until(lambda: (folder / "gpu.jsonl").exists())
    (folder / "work" / "stop").touch()
    told = ship.spot.ended(folder)["gpu"]
    assert told["used"] == "no"
    assert "nvidiaDocker is not set" in told["diagnosis"]["cause"]


@pytest.mark.usefixtures("with_toolkit")
def test_none_gives_the_container_none(ship):
    folder = ship.spot.run("r", UNTIL_TOLD, gpus="none", container={"gpus": ["all"]})
    ship.spot.start("r")
    ship.spot.up(folder)
    assert ship.engine.inspect(ship.spot.name("r"))["HostConfig"]["DeviceRequests"] is None
    (folder / "work" / "stop").touch()
    assert ship.spot.ended(folder)["gpu"] is None
