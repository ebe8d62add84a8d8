"""Managed environments: from conda_dependencies.yml to a script with its packages."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.remote_target import RemoteTarget
from tests.machines.channel import depend

SCRIPT = """
import os, sys
import hello, six
print("python", sys.prefix, six.__version__, os.environ["PATH"].split(":")[0], flush=True)
hello.main()
"""


def set_compute_key(root: Path, name: str, key: str, value: str) -> None:
    path = root / "aml_config" / f"{name}.compute"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}:")]
    path.write_text("\n".join([*lines, f"{key}: {value}", ""]))


def enable_managed_environment(root: Path, name: str) -> None:
    set_compute_key(root, name, "userManagedEnvironment", "false")


def test_local_run_gets_project_packages(user, channel):
    """One key in local.compute gives runs an environment with the project's packages. Build tools are downloaded."""
    root = user.project("demo", say=SCRIPT)
    depend(root, channel, "six==1.16.0", tools=False)
    enable_managed_environment(root, "local")
    first = user.mlw("submit", "-c", "local", "say.py", cwd=root)
    assert first.code == 0, first
    lock = user.info(first.run)["environment"]
    prefix = user.store / "envs" / lock["digest"]
    assert first.out.splitlines() == [f"python {prefix} 1.16.0 {prefix}/bin", f"hello from {prefix}"]
    assert "environment ready" in first.err and "pip: 1 packages" in first.err, "the build is shown as it goes"
    assert {package["name"]: package["version"] for package in lock["pip"]} == {"six": "1.16.0"}
    again = user.mlw("submit", "-c", "local", "say.py", cwd=root)
    assert again.code == 0 and again.out == first.out
    assert "environment ready" not in again.err, "it is there"
    assert (user.folder(first.run) / "build.log").read_text().startswith("conda: ")
    depend(root, channel)
    locked = user.mlw("submit", "-c", "local", "--locked", first.run, "say.py", cwd=root)
    assert locked.code == 0 and locked.out == first.out, "the environment of then, whatever the files say now"
    assert json.dumps(user.info(locked.run)["environment"]) == json.dumps(lock)


def test_container_uses_project_environment(laptop, engine, channel):
    """The environment is built outside the image and mounted read-only."""
    laptop.use_engine(engine)
    root = laptop.project("demo", say=SCRIPT)
    depend(root, channel, "six")
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert done.code == 0, done
    prefix = laptop.store / "envs" / laptop.info(done.run)["environment"]["digest"]
    assert f"python {prefix}" in done.out, done
    (root / "change.py").write_text(
        "import hello, os, subprocess, sys\n"
        "print(os.access(hello.__file__, os.W_OK), open(hello.__file__, 'rb').read()[:3])\n"
        "try:\n    open(hello.__file__, 'a').write('x')\nexcept OSError as error:\n    print(error.strerror)\n"
    )
    changed = laptop.mlw("submit", "-c", "docker", "change.py", cwd=root)
    refused = ("Read-only file system", "Permission denied")  # which error depends on the user's capabilities
    assert changed.code == 0 and any(text in changed.out for text in refused), changed


def test_offline_machine_gets_packages_from_client(laptop, machine, channel):
    host = machine(docker="yes")
    root = laptop.project("far", say=SCRIPT)
    depend(root, channel, "six")
    remote = RemoteTarget(laptop, host, "remotedocker", project=root, managed=True)
    prepared = remote.mlw("experiment", "prepare", "-c", remote.name)
    assert prepared.code == 0, prepared
    assert "environment ready" in prepared.err, prepared
    done = remote.submit("say.py")
    assert done.code == 0, done
    assert "environment ready" not in done.err, "prepare has built it"
    prefix = host.home / ".mlw" / "envs" / laptop.info(done.run)["environment"]["digest"]
    assert f"python {prefix}" in done.out and f"hello from {prefix}" in done.out, done


def test_remote_prepare_with_image_only(laptop, machine):
    """Without managed packages, prepare only pulls the image, and the target has no environments."""
    host = machine(docker="yes")
    remote = RemoteTarget(laptop, host, "remotedocker")
    arguments = ("experiment", "prepare", "-c", remote.name)
    done = remote.mlw(*arguments)
    assert done.code == 0 and f"image {host.engine.image} is available; nothing to build" in done.err, done
    set_compute_key(remote.project, remote.name, "baseDockerImage", "no-such/image:1")
    absent = remote.mlw(*arguments)
    assert absent.code != 0 and "error: cannot pull the image: " in absent.err, absent
    assert "no-such/image:1" in absent.err
    listed = remote.mlw("environment", "list", "-t", remote.name, "-o", "json")
    assert (listed.code, json.loads(listed.out)) == (0, []), listed


def test_programs_of_environment_are_on_path(user, channel):
    """PATH and variables are set as in an activated environment."""
    root = user.project("demo")
    depend(root, channel)
    enable_managed_environment(root, "local")
    done = user.mlw("submit", "-c", "local", "--", "hello", cwd=root)
    prefix = user.store / "envs" / user.info(done.run)["environment"]["digest"]
    assert (done.code, done.out) == (0, f"hello from {prefix}\n"), done
    shown = user.mlw("submit", "-c", "local", "--env", "PATH=/bin", "--", "env", cwd=root)
    lines = shown.out.splitlines()
    assert f"CONDA_PREFIX={prefix}" in lines and "PYTHONNOUSERSITE=1" in lines and f"PATH={prefix}/bin:/bin" in lines


def test_managed_environment_on_remote_machine_without_containers(laptop, machine):
    """The machine's Python is used; packages are installed into a separate environment."""
    host = machine()
    root = laptop.project("far", say="import six, sys\nprint(six.__version__, sys.prefix, sys.base_prefix)\n")
    remote = RemoteTarget(laptop, host, "remote", project=root)
    (root / "aml_config" / "requirements.txt").write_text("six==1.16.0\n")
    config = root / "aml_config" / "box.runconfig"
    config.write_text(config.read_text().replace("conda_dependencies.yml", "requirements.txt"))
    untouched = remote.submit("--", "python3", "-c", "import sys; print(sys.prefix)")
    assert untouched.code == 0 and laptop.info(untouched.run)["environment"]["kind"] == "target"
    set_compute_key(root, "box", "userManagedEnvironment", "false")
    done = remote.submit("say.py")
    assert done.code == 0, done
    lock = laptop.info(done.run)["environment"]
    prefix = host.home / ".mlw" / "envs" / lock["digest"]
    assert done.out == f"1.16.0 {prefix} {untouched.out}"
    assert [package["name"] for package in lock["pip"]] == ["six"] and lock["python"]["source"] == "host"
    again = remote.submit("say.py")
    assert again.out == done.out and "pip:" not in again.err
    assert remote.mlw("environment", "list", "-t", "box").out.count(lock["digest"][:12]) == 1
