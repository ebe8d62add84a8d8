"""Containers get only the parts of the machine that the user allowed, regardless of projects and earlier runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_docker_local import set_compute_key

PLANT = """
import os, sys
place, target = sys.argv[1:]
os.makedirs(os.path.dirname(place), exist_ok=True)
os.symlink(target, place)
"""
STEAL = """
import os, sys
print("seen:", sorted(os.listdir(sys.argv[1])), flush=True)
open(os.path.join(sys.argv[1], "owned"), "w").close()
"""


@pytest.fixture
def project(laptop, engine) -> Path:
    laptop.use_engine(engine)
    root = laptop.project("demo", plant=PLANT, steal=STEAL)
    set_compute_key(root, "baseDockerImage", engine.image)
    set_compute_key(root, "userManagedEnvironment", "true")
    (laptop.home / "diary").write_text("private")
    return root


def submit(laptop, project, *arguments):
    return laptop.mlw("submit", "-c", "docker", *arguments, cwd=project)


def untouched(laptop, done) -> None:
    assert done.code != 0, done
    assert "seen:" not in done.out, done
    assert not (laptop.home / "owned").exists()


def test_link_in_shared_folder_is_not_followed(laptop, engine, project):
    """A first run leaves a link in its share; a second names a share whose project folder is that link."""
    set_compute_key(project, "nativeSharedDirectory", "~/.azureml/share/")
    folder = json.loads((project / "aml_config" / "project.json").read_text())
    name = f"demo-{folder['Id'][:8]}"
    first = submit(laptop, project, "plant.py", f"/azureml-share/x/{name}", str(laptop.home))
    assert first.code == 0, first
    planted = laptop.home / ".azureml" / "share" / name / "x" / name
    assert planted.is_symlink()
    set_compute_key(project, "nativeSharedDirectory", f"~/.azureml/share/{name}/x")
    second = submit(laptop, project, "steal.py", "/azureml-share")
    untouched(laptop, second)
    assert "containers can write" in second.err and "hint:" in second.err, second


def test_link_in_allowed_folder_is_not_followed(laptop, engine, project, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    set_compute_key(project, "mounts", f"[{data}:/data]")
    first = submit(laptop, project, "--allow-mount", str(data), "plant.py", "/data/exit", str(laptop.home))
    assert first.code == 0 and (data / "exit").is_symlink(), first
    set_compute_key(project, "mounts", f"[{data}/exit:/exit]")
    below = submit(laptop, project, "--allow-mount", str(data), "steal.py", "/exit")
    untouched(laptop, below)
    assert "only that folder itself" in below.err, below
    # Refuse even if a user is tricked into naming the link, because a container may have created it.
    named = submit(laptop, project, "--allow-mount", f"{data}/exit", "steal.py", "/exit")
    untouched(laptop, named)
    assert f"is a link to {laptop.home}" in named.err, named
    read_only = submit(laptop, project, "--allow-mount", f"{data}:ro", "steal.py", "/exit")
    untouched(laptop, read_only)


def test_host_network_needs_user_consent(laptop, engine, project):
    (project / "names.py").write_text("print(open('/proc/net/unix').read().count('docker'), flush=True)")
    for mode in ("host", "container:other", "name=host"):
        set_compute_key(project, "network", mode)
        refused = submit(laptop, project, "names.py")
        assert refused.code == 78 and f"--allow-network {mode}" in refused.err and not refused.out, refused
    set_compute_key(project, "network", "host")
    allowed = submit(laptop, project, "--allow-network", "host", "names.py")
    assert allowed.code == 0 and int(allowed.out) > 0, allowed


def test_linked_root_and_folders_allowed_on_other_targets(laptop, machine, engine):
    """~/.mlw may be a link. Attachment records of older versions get its destination at the next contact."""
    host = machine(docker="yes")
    real = host.home / "disk" / "mlw"
    host.run("mkdir", "-p", str(real))
    host.run("ln", "-s", str(real), str(host.home / ".mlw"))
    host.run("chown", "-hR", f"{host.uid}:{host.uid}", str(host.home / "disk"), str(host.home / ".mlw"))
    root = laptop.project("far", steal=STEAL)
    remote = RemoteTarget(laptop, host, "remotedocker", project=root)
    assert remote.submit("steal.py", "/azureml-share").code == 0
    (record,) = (laptop.store / "targets").glob("*/attachment.json")
    old = {key: value for key, value in json.loads(record.read_text()).items() if key not in ("allowed", "places")}
    record.write_text(json.dumps({**old, "allowed_mounts": [str(host.home / "data")]}))
    again = remote.submit("steal.py", "/azureml-share")
    assert again.code == 0 and "owned" in again.out, again
    assert json.loads(record.read_text())["places"][str(host.home / ".mlw")] == str(real)
    shown = json.loads(remote.mlw("computetarget", "show", "box", "-o", "json").out)
    assert (shown["allowedMounts"], shown["allowedNetworks"]) == ([str(host.home / "data")], [])
    remote.mlw("computetarget", "update", "box", "--allow-network", "host", "--allow-mount", "/opt:ro", check=True)
    shown = json.loads(remote.mlw("computetarget", "show", "box", "-o", "json").out)
    assert (shown["allowedMounts"][1:], shown["allowedNetworks"]) == (["/opt:ro"], ["host"])
