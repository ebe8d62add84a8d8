"""The image: there, fetched, or not to be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlworkbench.remote.shared.containers import REGISTRY_PASSWORD

from .conftest import until
from .contained import read


def shm(spot):
    return [path.name for path in Path("/dev/shm").iterdir() if spot.name("r") in path.name]


def with_registry(registry, **more):
    return {"image": registry.image, "registry": {"server": registry.address, "username": registry.user}, **more}


def test_a_private_image_is_pulled(spot, registry):
    folder = spot.run("r", "print('hello')", container=with_registry(registry))
    spot.start("r", message={"secrets": {REGISTRY_PASSWORD: registry.password}})
    told = spot.ended(folder)
    assert told["ending"] == "succeeded", told
    assert (folder / "log").read_text() == "hello\n"
    steps = [e["data"] for e in spot.events(folder) if e["kind"] == "step"]
    assert steps[-1] == {"step": "image", "image": registry.image}
    assert "Downloaded newer image" in (folder / "build.log").read_text()
    assert shm(spot) == []
    for path in folder.rglob("*"):
        assert not path.is_file() or registry.password.encode() not in read(path)


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_private_image_without_the_right_password(spot, registry, password):
    folder = spot.run("r", "", container=with_registry(registry))
    spot.start("r", message={"secrets": {REGISTRY_PASSWORD: password} if password else {}})
    told = spot.ended(folder)
    assert told["ending"] == "could not start"
    assert registry.image in told["cause"]
    assert "login" in told["cause"]
    assert shm(spot) == []


def test_the_registry_does_not_answer(spot, registry):
    registry.stop()
    try:
        folder = spot.run("r", "", container={"image": registry.image})
        spot.start("r")
        told = spot.ended(folder)
        assert told["ending"] == "could not start"
        assert told["cause"].startswith(
            f"image {registry.image} is not on the target, and the registry cannot be reached"
        )
    finally:
        registry.start()


def test_there_is_no_such_image(spot, registry):
    image = f"{registry.address}/microsoft/mmlspark:plus-0.9.9"
    change = {**with_registry(registry), "image": image}
    folder = spot.run("r", "", container=change)
    spot.start("r", message={"secrets": {REGISTRY_PASSWORD: registry.password}})
    told = spot.ended(folder)
    assert told["ending"] == "could not start"
    assert told["cause"].startswith(f"image {image} was withdrawn")
    assert "set baseDockerImage" in told["cause"]


def test_nothing_is_pulled_if_so_decided(spot):
    folder = spot.run("r", "", container={"image": "no-such-image:1", "pull": False})
    spot.start("r")
    told = spot.ended(folder)
    assert told["cause"].startswith("image no-such-image:1 does not exist")
    assert not (folder / "build.log").exists()


def test_cancel_while_the_image_is_pulled(spot, registry, tmp_path):
    """A pull that takes for ever: the engine's program is one that waits."""
    from .contained import DOCKER

    slow = tmp_path / "docker"
    slow.write_text(f'#!/bin/sh\n[ "$1" = pull ] && echo Pulling && exec sleep 1000\nexec {DOCKER} "$@"\n')
    slow.chmod(0o755)
    folder = spot.run("r", "", container=with_registry(registry, program=str(slow)))
    spot.start("r", message={"secrets": {REGISTRY_PASSWORD: registry.password}})
    assert spot.event(folder, "step")["step"] == "code"
    until(lambda: b"Pulling" in read(folder / "build.log"))
    assert shm(spot)
    spot.call("cancel", "r", "me")
    told = spot.ended(folder)
    assert (told["ending"], told["cause"]) == ("cancelled", "canceled before it started")
    assert shm(spot) == []


def test_launcher_killed_while_the_image_is_pulled(spot, registry):
    folder = spot.run("r", "", container=with_registry(registry))
    message = {"secrets": {REGISTRY_PASSWORD: registry.password}}
    spot.start("r", message=message, env={"MLW_FAILPOINT": "pulling:kill"})
    told = spot.ended(folder)
    assert (told["ending"], told["cause"]) == ("could not start", "the launcher died before the script started")
    assert shm(spot) == []
    assert os.path.exists(folder / "build.log")
