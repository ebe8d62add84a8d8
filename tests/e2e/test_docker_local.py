"""``type: docker``: containers on the laptop's own engine, through the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.machines.channel import depend

HELLO = """
import os, sys
print("in", os.getcwd(), "uid", os.getuid(), flush=True)
with open("outputs/here.txt", "w") as file:
    file.write("x" * 10)
with open(os.environ["AZUREML_NATIVE_SHARE_DIRECTORY"] + "count", "a") as file:
    file.write("x")
print("runs so far", os.path.getsize(os.environ["AZUREML_NATIVE_SHARE_DIRECTORY"] + "count"))
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def project(laptop, engine) -> Path:
    laptop.use_engine(engine)
    root = laptop.project("demo", train=HELLO)
    set_compute_key(root, "baseDockerImage", engine.image)
    set_compute_key(root, "userManagedEnvironment", "true")  # use the Python of the image
    return root


def set_compute_key(root: Path, key: str, value: str) -> None:
    path = root / "aml_config" / "docker.compute"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}:")]
    path.write_text("\n".join([*lines, f"{key}: {value}", ""]))


def test_script_runs_in_container(laptop, engine, project):
    first = laptop.mlw("submit", "-c", "docker", "train.py", cwd=project)
    assert first.code == 0, first
    assert f"uid {os.getuid()}" in first.out and "runs so far 1" in first.out
    outputs = laptop.folder(first.run) / "work" / "outputs"
    assert (outputs / "here.txt").stat().st_uid == os.getuid()
    again = laptop.mlw("submit", "-c", "docker", "train.py", "7", cwd=project)
    assert again.code == 7, again
    assert "runs so far 2" in again.out, "the shared folder outlives runs"
    assert engine.containers() == []


def test_missing_image_is_reported(laptop, engine, project):
    set_compute_key(project, "baseDockerImage", "microsoft/mmlspark:plus-gpu-0.9.9")
    done = laptop.mlw("submit", "-c", "docker", "train.py", cwd=project)
    assert done.code != 0
    assert "microsoft/mmlspark:plus-gpu-0.9.9" in done.err
    assert "baseDockerImage" in done.err, done
    assert laptop.info(done.run)["ending"] == "could not start"


def test_mounts_need_user_consent(laptop, engine, project, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "set.csv").write_text("1,2\n")
    set_compute_key(project, "mounts", f"[{data}:/data:ro]")
    (project / "read.py").write_text("print(open('/data/set.csv').read())")
    refused = laptop.mlw("submit", "-c", "docker", "read.py", cwd=project)
    assert refused.code != 0 and str(data) in refused.err and "--allow-mount" in refused.err, refused
    allowed = laptop.mlw("submit", "-c", "docker", "--allow-mount", str(data), "read.py", cwd=project)
    assert allowed.code == 0 and "1,2" in allowed.out, allowed
    set_compute_key(project, "mounts", "[/var/run/docker.sock]")
    socket = laptop.mlw("submit", "-c", "docker", "--allow-mount", "/var", "read.py", cwd=project)
    assert socket.code != 0 and "socket of a container engine" in socket.err, "it is as good as root"


def test_remote_engine_is_refused(laptop, engine, project):
    done = laptop.mlw("submit", "-c", "docker", "train.py", cwd=project, env={"DOCKER_HOST": "tcp://10.0.0.1:2375"})
    assert done.code != 0 and "tcp://10.0.0.1:2375" in done.err, done


def test_missing_engine_shows_remedy(laptop, engine, project):
    engine.stop()
    done = laptop.mlw("submit", "-c", "docker", "train.py", cwd=project)
    assert done.code != 0
    assert "docker" in done.err.lower() and "hint:" in done.err, done


def test_cancel_leaves_no_container(laptop, engine, project):
    (project / "long.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    started = laptop.mlw("submit", "-c", "docker", "--detach", "long.py", cwd=project)
    assert started.code == 0, started
    run = started.out.strip()
    follow = laptop.start("logs", "-f", run, cwd=project)
    assert follow.stdout.readline() == b"up\n"
    done = laptop.mlw("cancel", run, cwd=project)
    assert done.code == 0, done
    assert laptop.info(run)["status"] == "Canceled"
    assert engine.containers() == []
    follow.communicate(timeout=30)


def test_secrets_reach_only_the_container(laptop, engine, project):
    (project / "secret.py").write_text(
        "import os, time\nprint(len(os.environ['TOKEN']), flush=True)\ntime.sleep(600)\n"
    )
    canary = "canary-token-4711"
    started = laptop.mlw(
        "submit", "-c", "docker", "--secret", "TOKEN", "--detach", "secret.py", cwd=project, env={"TOKEN": canary}
    )
    run = started.out.strip()
    follow = laptop.start("logs", "-f", run, cwd=project)
    assert follow.stdout.readline() == b"17\n"
    (name,) = engine.containers()
    assert canary not in str(engine.inspect(name))
    files = [path for path in [*laptop.store.rglob("*"), *engine.folder.rglob("*.json")] if path.is_file()]
    assert [path for path in files if canary.encode() in path.read_bytes()] == []
    assert laptop.mlw("cancel", "--grace", "0", run, cwd=project).code == 0
    follow.communicate(timeout=30)


def test_dry_run_shows_container_settings(laptop, engine, project):
    done = laptop.mlw("submit", "-c", "docker", "--dry-run", "train.py", cwd=project)
    assert done.code == 0, done
    assert engine.image in done.out and '"container"' in done.out
    assert engine.containers() == []


def test_image_from_private_registry(laptop, engine, project, registry):
    """The password is sent only to the registry that the user named with it, and is not stored."""
    set_compute_key(project, "baseDockerImage", registry.image)
    set_compute_key(project, "registryUsername", registry.user)
    (project / "hello.py").write_text("print('pulled')")
    unknown = laptop.mlw("submit", "-c", "docker", "hello.py", cwd=project)
    assert unknown.code != 0 and registry.user in unknown.err and "MLW_REGISTRY_PASSWORD" in unknown.err, unknown
    other_server = {"MLW_REGISTRY_PASSWORD": registry.password, "MLW_REGISTRY_SERVER": "other.example"}
    refused = laptop.mlw("submit", "-c", "docker", "hello.py", cwd=project, env=other_server)
    assert refused.code != 0 and registry.address in refused.err, refused
    right = {**other_server, "MLW_REGISTRY_SERVER": registry.address}
    done = laptop.mlw("submit", "-c", "docker", "hello.py", cwd=project, env=right)
    assert done.code == 0 and "pulled" in done.out, done
    assert "Pulling from private" in done.err, "the pull shows what it does"
    files = [path for path in [*laptop.store.rglob("*"), *laptop.home.rglob("*")] if path.is_file()]
    assert [path for path in files if registry.password.encode() in path.read_bytes()] == []


def has(engine, image: str) -> bool:
    return bool(engine.docker("image", "inspect", image, check=False).returncode == 0)


@pytest.mark.parametrize("managed", [False, True], ids=["own", "managed"])
def test_prepare_pulls_the_image(laptop, engine, project, registry, channel, managed):
    """Prepare with and without managed packages, from a registry that requires a login."""
    set_compute_key(project, "baseDockerImage", registry.image)
    set_compute_key(project, "registryUsername", registry.user)
    if managed:
        set_compute_key(project, "userManagedEnvironment", "false")
        depend(project, channel)
    arguments = ("experiment", "prepare", "-c", "docker")
    unknown = laptop.mlw(*arguments, cwd=project)
    assert unknown.code == 2 and registry.user in unknown.err and "MLW_REGISTRY_PASSWORD" in unknown.err, unknown
    assert not has(engine, registry.image)
    wrong = {"MLW_REGISTRY_PASSWORD": "wrong", "MLW_REGISTRY_SERVER": registry.address}
    refused = laptop.mlw(*arguments, cwd=project, env=wrong)
    assert refused.code != 0 and "refused the login" in refused.err, refused
    right = {**wrong, "MLW_REGISTRY_PASSWORD": registry.password}
    done = laptop.mlw(*arguments, "-o", "json", cwd=project, env=right)
    assert done.code == 0 and has(engine, registry.image), done
    assert "Pulling from private" in done.err and json.loads(done.out)["image"] == registry.image
    again = laptop.mlw(*arguments, cwd=project, env=right)
    assert again.code == 0 and "Pulling" not in again.err, again
    files = [path for path in [*laptop.store.rglob("*"), *laptop.home.rglob("*")] if path.is_file()]
    own_files = [path for path in files if "/lib/python3" not in str(path)]  # Python contains the phrase, too
    assert [path for path in own_files if registry.password.encode() in path.read_bytes()] == []


def test_prepare_reports_missing_image(laptop, engine, project):
    set_compute_key(project, "baseDockerImage", "microsoft/mmlspark:plus-gpu-0.9.9")
    done = laptop.mlw("experiment", "prepare", "-c", "docker", cwd=project)
    assert done.code != 0 and "error: cannot pull the image: " in done.err, done
    assert "microsoft/mmlspark:plus-gpu-0.9.9" in done.err and "hint: " in done.err
