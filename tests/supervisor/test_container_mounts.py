"""The final mount check right before a real engine is called: links, sockets, devices, nested mounts."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from .container_targets import DOCKER

LIST = "import os; print(sorted(os.listdir('/given')))"


def could_not_start(target, *mounts, run="r", **more) -> str:
    folder = target.run(run, LIST, container={"mounts": [list(mount) for mount in mounts], **more})
    target.start(run)
    ending = target.ended(folder)
    assert ending["ending"] == "could not start", ending
    assert target.name(run) not in target.engine.containers()
    assert b"diary" not in (folder / "log").read_bytes() if (folder / "log").exists() else True
    return str(ending["cause"])


@pytest.fixture
def victim(tmp_path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "diary").write_text("private")
    return folder


@pytest.mark.parametrize("where", ["last", "above", "share", "home"])
def test_no_link_is_followed(target, victim, tmp_path, where):
    place = tmp_path / "data"
    place.mkdir()
    (victim / "sub").mkdir()
    source, mount_point = place / "x", "/given"
    if where == "share":
        source, mount_point = place / "x" / "made", "/azureml-share"
    elif where == "home":
        source = target.root / "homes" / "p"
        source.parent.mkdir(parents=True)
    link = source if where in ("last", "home") else place / "x"
    link.symlink_to(victim)
    source = place / "x" / "sub" if where == "above" else source
    cause = could_not_start(target, (str(source), mount_point, "rw"))
    assert f"{link.name} in it is a link" in cause and "hint:" in cause
    assert not (victim / "made").exists(), "nothing is made behind a link"


def test_a_recorded_link_is_followed(target, tmp_path):
    """A path that was resolved at attach is mounted from its real path, at the path that the user entered."""
    real, spelled = tmp_path / "real", tmp_path / "spelled"
    real.mkdir()
    (real / "in.txt").touch()
    spelled.symlink_to(real)
    container = {"mounts": [[str(spelled), "/given", "ro"]], "resolved": [[str(spelled), str(real)]]}
    folder = target.run("r", LIST, container=container)
    target.start("r")
    assert target.ended(folder)["ending"] == "succeeded"
    assert (folder / "log").read_text() == "['in.txt']\n"


def test_a_source_that_is_replaced_while_the_image_is_pulled(target, victim, tmp_path):
    """The check runs right before each call of the engine, not only once at the beginning."""
    data, program, image = tmp_path / "data", tmp_path / "engine", f"pulled-{os.getpid()}:1"
    data.mkdir()
    swap = f"rmdir {data} && ln -s {victim} {data} && exec {DOCKER} tag {target.engine.image} {image}"
    program.write_text(f'#!/bin/sh\nif [ "$1" = pull ]; then {swap}; fi\nexec {DOCKER} "$@"\n')
    program.chmod(0o755)
    cause = could_not_start(target, (str(data), "/given", "ro"), image=image, program=str(program))
    assert data.is_symlink() and "data in it is a link" in cause


def test_a_source_below_what_a_running_container_can_write(target, tmp_path):
    """It is refused even for a read-only mount: the other container could replace the folder after the check."""
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    hold = "import time; print('up', flush=True); time.sleep(1000)"
    first = target.run("r1", hold, container={"mounts": [[str(data), "/given", "rw"]]})
    target.start("r1")
    target.up(first)
    cause = could_not_start(target, (str(data / "sub"), "/given", "ro"), run="r2")
    assert f"the container of run r1 can write to {data}" in cause and "hint:" in cause
    itself = target.run("r3", LIST, container={"mounts": [[str(data), "/given", "ro"]]})
    target.start("r3")
    assert target.ended(itself)["ending"] == "succeeded"
    target.call("cancel", "r1", "me", "0")
    target.ended(first)
    after = target.run("r4", LIST, container={"mounts": [[str(data / "sub"), "/given", "ro"]]})
    target.start("r4")
    assert target.ended(after)["ending"] == "succeeded"


def test_sockets_and_devices(target, tmp_path):
    path = f"/tmp/mlw-test-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        try:
            assert "it is a socket" in could_not_start(target, (path, "/given", "ro"))
        finally:
            os.unlink(path)
    device = tmp_path / "device"
    subprocess.run(["mknod", str(device), "b", "7", "200"], check=True)
    assert "it is a device" in could_not_start(target, (str(device), "/given", "ro"), run="r2")


def test_folders_with_an_engines_socket(target, tmp_path):
    """The folder of the socket is refused under its own path and under the path of a bind mount."""
    folder = Path(os.path.realpath(target.engine.socket)).parent
    alias = tmp_path / "alias"
    alias.mkdir()
    subprocess.run(["mount", "--bind", str(folder), str(alias)], check=True)
    try:
        for number, source in enumerate((folder, folder.parent, alias, tmp_path, Path("/run"), Path("/proc"))):
            cause = could_not_start(target, (str(source), "/given", "ro"), run=f"r{number}")
            assert "the socket of a container engine" in cause or "/proc gives access" in cause, (source, cause)
    finally:
        subprocess.run(["umount", "-l", str(alias)], check=True)


def test_read_only_includes_what_is_mounted_below(target, tmp_path):
    """A file system mounted below a read-only mount is read-only, too. Engines before 2023 leave it writable."""
    data = tmp_path / "data"
    (data / "disk").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(data / "disk")], check=True)
    try:
        (data / "disk" / "set.csv").write_text("1")
        script = "print(open('/given/disk/set.csv').read())\nopen('/given/disk/planted', 'w')"
        folder = target.run("r", script, container={"mounts": [[str(data), "/given", "ro"]]})
        target.start("r")
        ending = target.ended(folder)
        assert ending["ending"] == "failed" and not (data / "disk" / "planted").exists(), ending
        log = (folder / "log").read_text()
        assert log.startswith("1\n") and "Read-only file system" in log
    finally:
        subprocess.run(["umount", "-l", str(data / "disk")], check=True)
