"""Follow the original GPU article: create a project, attach a machine, edit two files, and submit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.machines.channel import depend
from tests.machines.machine import Machine

pytestmark = pytest.mark.installed

PASSWORD = "canary-Passw0rd-17"
PACKAGES = """
import hello, six, sys
print("with", six.__version__, "in", sys.prefix)
"""
TRAIN = """
import os, socket, sys
import mlworkbench
print("host", socket.gethostname(), "args", sys.argv[1:], "uid", os.getuid(), flush=True)
os.makedirs("outputs", exist_ok=True)
with open("outputs/model.bin", "wb") as file:
    file.write(bytes(range(256)) * 4096)
with open(os.environ["AZUREML_NATIVE_SHARE_DIRECTORY"] + "seen", "a") as file:
    file.write("x")
mlworkbench.log("accuracy", 0.875)
print("done")
"""


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new))


def files_with_password(*places: Path) -> list[Path]:
    return [
        path
        for place in places
        for path in place.rglob("*")
        if path.is_file() and not path.is_symlink() and PASSWORD.encode() in path.read_bytes()
    ]


def attach(laptop, project: Path, host: Machine, *options: str):
    return laptop.mlw(
        *("computetarget", "attach", *options, "--name", "my_dsvm", "--address", host.address),
        *("--username", host.user, "--password", PASSWORD, "--host-key", host.host_key_fingerprint),
        cwd=project,
    )


def test_gpu_article_walkthrough(laptop, machine, engine, channel):
    host = machine(password=PASSWORD, docker="yes")
    project = laptop.project("mnist", train=PACKAGES + TRAIN)
    depend(project, channel, "six==1.16.0")
    attached = attach(laptop, project, host, "remotedocker")
    assert attached.code == 0, attached
    assert "process" in attached.err, "a password on the command line is warned of"
    compute, runconfig = project / "aml_config" / "my_dsvm.compute", project / "aml_config" / "my_dsvm.runconfig"
    for line in ("type: remotedocker", f"address: {host.address}", f"username: {host.user}", "baseDockerImage: "):
        assert line in compute.read_text()
    for line in ("Framework: Python", "PrepareEnvironment: true", "Target: my_dsvm"):
        assert line in runconfig.read_text()

    default = next(line for line in compute.read_text().splitlines() if line.startswith("baseDockerImage:"))
    edit(compute, default, f"baseDockerImage: {engine.image}")
    done = laptop.mlw("experiment", "submit", "-c", "my_dsvm", "train.py", "--lr", "0.1", cwd=project)
    assert done.code == 0, done
    assert "args ['--lr', '0.1']" in done.out
    assert f"with 1.16.0 in {host.home}/.mlw/envs/" in done.out, "the project's packages, not the image's"
    assert f"uid {host.uid}" in done.out
    record = laptop.info(done.run)
    assert (record["status"], record["ending"], record["accuracy"]) == ("Completed", "succeeded", 0.875)
    assert record["target"] == "my_dsvm"

    folder = laptop.folder(done.run)
    model = folder / "work" / "outputs" / "model.bin"
    remote_folder = host.home / ".mlw" / "runs" / done.run
    assert (
        hashlib.sha256(model.read_bytes()).hexdigest()
        == hashlib.sha256((remote_folder / "work" / "outputs" / "model.bin").read_bytes()).hexdigest()
    )
    assert (remote_folder / "work" / "outputs" / "model.bin").stat().st_uid == host.uid
    assert (folder / "log").read_bytes() == (remote_folder / "log").read_bytes() == done.stdout
    assert engine.containers() == []
    assert files_with_password(laptop.home, laptop.store, host.home) == []
    listed = json.loads(laptop.mlw("history", "list", "-o", "json", cwd=project).out)
    assert [run["run_id"] for run in listed] == [done.run]


def test_original_spelling_of_attach(laptop, machine):
    host = machine(password=PASSWORD)
    project = laptop.project("mnist", train=TRAIN)
    attached = attach(laptop, project, host, "--type", "remote")
    assert attached.code == 0, attached
    assert "computetarget attach remote" in attached.err, "a hint names today's spelling"
    done = laptop.mlw("submit", "-c", "my_dsvm", "train.py", cwd=project)
    assert done.code == 0, done
    assert f"host {host.name}" in done.out
    assert laptop.info(done.run)["accuracy"] == 0.875


def test_failed_attach_changes_nothing(laptop, machine):
    host = machine(password=PASSWORD)
    project = laptop.project("mnist", train=TRAIN)
    before = sorted(path for path in [*project.rglob("*"), *host.home.rglob("*")] if path.is_file())
    wrong = laptop.mlw(
        *("computetarget", "attach", "remote", "--name", "my_dsvm", "--address", host.address),
        *("--username", host.user, "--password", "wrong", "--host-key", host.host_key_fingerprint),
        cwd=project,
    )
    assert wrong.code != 0
    assert "password" in wrong.err and "hint:" in wrong.err
    stranger = laptop.mlw(
        *("computetarget", "attach", "remote", "--name", "my_dsvm", "--address", host.address),
        *("--username", host.user, "--password", PASSWORD, "--host-key", "SHA256:" + "A" * 43),
        cwd=project,
    )
    assert stranger.code != 0 and host.host_key_fingerprint in stranger.err
    without_docker = attach(laptop, project, host, "remotedocker")
    assert without_docker.code != 0 and "docker" in without_docker.err.lower()
    after = sorted(path for path in [*project.rglob("*"), *host.home.rglob("*")] if path.is_file())
    assert [path for path in after if path not in before and ".mlw/lib" not in str(path)] == []
    assert not list((laptop.store / "targets").glob("*")) if (laptop.store / "targets").exists() else True
