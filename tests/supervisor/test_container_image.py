"""The image: present, pulled, or unavailable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlworkbench.remote.shared.containers import REGISTRY_PASSWORD

from .conftest import until
from .container_targets import read


def shm(target):
    return [path.name for path in Path("/dev/shm").iterdir() if target.name("r") in path.name]


def with_registry(registry, **more):
    return {"image": registry.image, "registry": {"server": registry.address, "username": registry.user}, **more}


def test_a_private_image_is_pulled(target, registry):
    folder = target.run("r", "print('hello')", container=with_registry(registry))
    target.start("r", message={"secrets": {REGISTRY_PASSWORD: registry.password}})
    ending = target.ended(folder)
    assert ending["ending"] == "succeeded", ending
    assert (folder / "log").read_text() == "hello\n"
    steps = [e["data"] for e in target.events(folder) if e["kind"] == "step"]
    assert steps[-1] == {"step": "image", "image": registry.image}
    assert "Downloaded newer image" in (folder / "build.log").read_text()
    assert shm(target) == []
    for path in folder.rglob("*"):
        assert not path.is_file() or registry.password.encode() not in read(path)


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_private_image_without_the_right_password(target, registry, password):
    folder = target.run("r", "", container=with_registry(registry))
    target.start("r", message={"secrets": {REGISTRY_PASSWORD: password} if password else {}})
    ending = target.ended(folder)
    assert ending["ending"] == "could not start"
    assert registry.image in ending["cause"]
    assert "login" in ending["cause"]
    assert shm(target) == []


def test_the_registry_does_not_answer(target, registry):
    registry.stop()
    try:
        folder = target.run("r", "", container={"image": registry.image})
        target.start("r")
        ending = target.ended(folder)
        assert ending["ending"] == "could not start"
        assert ending["cause"].startswith(
            f"image {registry.image} is not on the target, and the registry cannot be reached"
        )
    finally:
        registry.start()


def test_there_is_no_such_image(target, registry):
    image = f"{registry.address}/microsoft/mmlspark:plus-0.9.9"
    change = {**with_registry(registry), "image": image}
    folder = target.run("r", "", container=change)
    target.start("r", message={"secrets": {REGISTRY_PASSWORD: registry.password}})
    ending = target.ended(folder)
    assert ending["ending"] == "could not start"
    assert ending["cause"].startswith(f"image {image} was withdrawn")
    assert "set baseDockerImage" in ending["cause"]


def test_nothing_is_pulled_if_so_decided(target):
    folder = target.run("r", "", container={"image": "no-such-image:1", "pull": False})
    target.start("r")
    ending = target.ended(folder)
    assert ending["cause"].startswith("image no-such-image:1 does not exist")
    assert not (folder / "build.log").exists()


def test_cancel_while_the_image_is_pulled(target, registry, tmp_path):
    """The cancel ends a pull that hangs, simulated by an engine client that sleeps."""
    from .container_targets import DOCKER

    slow = tmp_path / "docker"
    slow.write_text(f'#!/bin/sh\n[ "$1" = pull ] && echo Pulling && exec sleep 1000\nexec {DOCKER} "$@"\n')
    slow.chmod(0o755)
    folder = target.run("r", "", container=with_registry(registry, program=str(slow)))
    target.start("r", message={"secrets": {REGISTRY_PASSWORD: registry.password}})
    assert target.event(folder, "step")["step"] == "code"
    until(lambda: b"Pulling" in read(folder / "build.log"))
    assert shm(target)
    target.call("cancel", "r", "me")
    ending = target.ended(folder)
    assert (ending["ending"], ending["cause"]) == ("cancelled", "canceled before it started")
    assert shm(target) == []


def test_launcher_killed_while_the_image_is_pulled(target, registry):
    folder = target.run("r", "", container=with_registry(registry))
    message = {"secrets": {REGISTRY_PASSWORD: registry.password}}
    target.start("r", message=message, env={"MLW_FAILPOINT": "pulling:kill"})
    ending = target.ended(folder)
    assert (ending["ending"], ending["cause"]) == ("could not start", "the launcher died before the script started")
    assert shm(target) == []
    assert os.path.exists(folder / "build.log")
