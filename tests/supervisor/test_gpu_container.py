"""Containers with GPUs: the real engine with a GPU hook that does nothing, and simulated GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.engine import Engine

from .conftest import until
from .container_targets import read
from .gpu_hosts import GIB, GpuHost

UNTIL_STOPPED = "import os, time\nprint('up', os.environ.get('CUDA_VISIBLE_DEVICES'))\n"
UNTIL_STOPPED += "while not os.path.exists('stop'): time.sleep(0.02)\n"


class GpuContainerTarget:
    """The target of the container tests, with GPUs."""

    def __init__(self, target: Any, host: GpuHost) -> None:
        self.target, self.host = target, host
        target.env, target.program = host.env, host.program

    @property
    def engine(self) -> Engine:
        engine: Engine = self.target.engine
        return engine


@pytest.fixture
def gpu_target(target, tmp_path):
    return GpuContainerTarget(target, GpuHost(tmp_path, 2))


@pytest.fixture
def with_toolkit(gpu_target):
    gpu_target.engine.stop()
    gpu_target.engine.start(gpus=True)


@pytest.mark.usefixtures("with_toolkit")
def test_a_container_gets_the_gpu_that_is_free_and_its_processes_are_known(gpu_target):
    """Another process uses the first GPU. The run's GPU is chosen when its turn comes."""
    first, second = gpu_target.host.uuids
    gpu_target.host.gpus.change(first, process=[("compute", 1, 8 * GIB)])
    folder = gpu_target.target.run("r", UNTIL_STOPPED, gpus="free", container={"gpus": ["all"]})
    gpu_target.target.start("r")
    gpu_target.target.up(folder)
    container = gpu_target.engine.inspect(gpu_target.target.name("r"))
    assert [request["DeviceIDs"] for request in container["HostConfig"]["DeviceRequests"]] == [[second]]
    assert read(folder / "log") == f"up {second}\n".encode()
    gpu_target.host.gpus.change(second, process=[("compute", container["State"]["Pid"], 2 * GIB)], utilisation=70)
    until(lambda: b'"own":%d' % (2 * GIB) in read(folder / "gpu.jsonl"))
    (folder / "work" / "stop").touch()
    ending = gpu_target.target.ended(folder)
    assert ending["ending"] == "succeeded"
    assert ending["gpu"]["used"] == "yes", ending["gpu"]


def test_without_the_toolkit_the_cause_is_named(gpu_target):
    folder = gpu_target.target.run("r", "print('never')", gpus="1", container={"gpus": ["all"]})
    gpu_target.target.start("r")
    ending = gpu_target.target.ended(folder)
    assert ending["ending"] == "could not start"
    assert ending["gpu"]["used"] == "no"
    assert "Container Toolkit is missing" in ending["gpu"]["diagnosis"]["cause"]
    assert "nvidia-ctk" in ending["gpu"]["diagnosis"]["remedy"]


def test_a_container_without_gpus_on_a_machine_that_has_some(gpu_target):
    folder = gpu_target.target.run("r", "print('Found no NVIDIA driver on your system.')\n" + UNTIL_STOPPED)
    gpu_target.target.start("r")
    until(lambda: (folder / "gpu.jsonl").exists())
    (folder / "work" / "stop").touch()
    gpu = gpu_target.target.ended(folder)["gpu"]
    assert gpu["used"] == "no"
    assert "nvidiaDocker is not set" in gpu["diagnosis"]["cause"]


@pytest.mark.usefixtures("with_toolkit")
def test_none_gives_the_container_none(gpu_target):
    folder = gpu_target.target.run("r", UNTIL_STOPPED, gpus="none", container={"gpus": ["all"]})
    gpu_target.target.start("r")
    gpu_target.target.up(folder)
    assert gpu_target.engine.inspect(gpu_target.target.name("r"))["HostConfig"]["DeviceRequests"] is None
    (folder / "work" / "stop").touch()
    assert gpu_target.target.ended(folder)["gpu"] is None
