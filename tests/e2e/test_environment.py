"""Environments that we make, as a user meets them: from conda_dependencies.yml to a script with its packages."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.elsewhere import Away
from tests.machines.channel import depend

SAY = """
import os, sys
import hello, six
print("python", sys.prefix, six.__version__, os.environ["PATH"].split(":")[0], flush=True)
hello.main()
"""


def point(root: Path, name: str, key: str, value: str) -> None:
    path = root / "aml_config" / f"{name}.compute"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}:")]
    path.write_text("\n".join([*lines, f"{key}: {value}", ""]))


def manage(root: Path, name: str) -> None:
    point(root, name, "userManagedEnvironment", "false")


def test_a_project_gets_its_packages_on_this_machine(user, channel):
    """One key, and `local` runs in an environment of the project's own; the tools that build it are fetched."""
    root = user.project("demo", say=SAY)
    depend(root, channel, "six==1.16.0", tools=False)
    manage(root, "local")
    first = user.mlw("submit", "-c", "local", "say.py", cwd=root)
    assert first.code == 0, first
    lock = user.info(first.run)["environment"]
    prefix = user.store / "envs" / lock["digest"]
    assert first.out.splitlines() == [f"python {prefix} 1.16.0 {prefix}/bin", f"hello from {prefix}"]
    assert "environment ready" in first.err and "pip: 1 packages" in first.err, "the build is shown as it goes"
    assert {one["name"]: one["version"] for one in lock["pip"]} == {"six": "1.16.0"}
    again = user.mlw("submit", "-c", "local", "say.py", cwd=root)
    assert again.code == 0 and again.out == first.out
    assert "environment ready" not in again.err, "it is there"
    assert (user.folder(first.run) / "build.log").read_text().startswith("conda: ")
    depend(root, channel)
    locked = user.mlw("submit", "-c", "local", "--locked", first.run, "say.py", cwd=root)
    assert locked.code == 0 and locked.out == first.out, "the environment of then, whatever the files say now"
    assert json.dumps(user.info(locked.run)["environment"]) == json.dumps(lock)


def test_a_container_without_packages_runs_the_projects_own(laptop, engine, channel):
    """The image is used as it is: the environment is made beside it and mounted."""
    laptop.uses(engine)
    root = laptop.project("demo", say=SAY)
    depend(root, channel, "six")
    point(root, "docker", "baseDockerImage", engine.image)
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
    refused = ("Read-only file system", "Permission denied")  # which of them: whether the user has capabilities
    assert changed.code == 0 and any(word in changed.out for word in refused), changed


def test_a_machine_elsewhere_without_internet_gets_the_packages_from_here(laptop, machine, channel):
    host = machine(docker="yes")
    root = laptop.project("far", say=SAY)
    depend(root, channel, "six")
    away = Away(laptop, host, "remotedocker", project=root, managed=True)
    prepared = away.mlw("experiment", "prepare", "-c", away.name)
    assert prepared.code == 0, prepared
    assert "environment ready" in prepared.err, prepared
    done = away.submit("say.py")
    assert done.code == 0, done
    assert "environment ready" not in done.err, "prepare has built it"
    prefix = host.home / ".mlw" / "envs" / laptop.info(done.run)["environment"]["digest"]
    assert f"python {prefix}" in done.out and f"hello from {prefix}" in done.out, done


def test_prepare_elsewhere_looks_after_the_image_alone_too(laptop, machine):
    """Where the packages are not ours, the image is all that there is to prepare; nothing is left of it but notes."""
    host = machine(docker="yes")
    away = Away(laptop, host, "remotedocker")
    words = ("experiment", "prepare", "-c", away.name)
    done = away.mlw(*words)
    assert done.code == 0 and f"image {host.engine.image} is available; nothing to build" in done.err, done
    point(away.project, away.name, "baseDockerImage", "no-such/image:1")
    absent = away.mlw(*words)
    assert absent.code != 0 and "error: cannot pull the image: " in absent.err, absent
    assert "no-such/image:1" in absent.err
    listed = away.mlw("environment", "list", "-t", away.name, "-o", "json")
    assert (listed.code, json.loads(listed.out)) == (0, []), listed


def test_a_program_of_the_environment_is_found(user, channel):
    """PATH and the variables are as if somebody had activated it."""
    root = user.project("demo")
    depend(root, channel)
    manage(root, "local")
    done = user.mlw("submit", "-c", "local", "--", "hello", cwd=root)
    prefix = user.store / "envs" / user.info(done.run)["environment"]["digest"]
    assert (done.code, done.out) == (0, f"hello from {prefix}\n"), done
    shown = user.mlw("submit", "-c", "local", "--env", "PATH=/bin", "--", "env", cwd=root)
    lines = shown.out.splitlines()
    assert f"CONDA_PREFIX={prefix}" in lines and "PYTHONNOUSERSITE=1" in lines and f"PATH={prefix}/bin:/bin" in lines


def test_a_machine_elsewhere_without_containers(laptop, machine):
    """The Python that is there serves; packages go into an environment beside it."""
    host = machine()
    root = laptop.project("far", say="import six, sys\nprint(six.__version__, sys.prefix, sys.base_prefix)\n")
    away = Away(laptop, host, "remote", project=root)
    (root / "aml_config" / "requirements.txt").write_text("six==1.16.0\n")
    config = root / "aml_config" / "box.runconfig"
    config.write_text(config.read_text().replace("conda_dependencies.yml", "requirements.txt"))
    untouched = away.submit("--", "python3", "-c", "import sys; print(sys.prefix)")
    assert untouched.code == 0 and laptop.info(untouched.run)["environment"]["kind"] == "target"
    point(root, "box", "userManagedEnvironment", "false")
    done = away.submit("say.py")
    assert done.code == 0, done
    lock = laptop.info(done.run)["environment"]
    prefix = host.home / ".mlw" / "envs" / lock["digest"]
    assert done.out == f"1.16.0 {prefix} {untouched.out}"
    assert [one["name"] for one in lock["pip"]] == ["six"] and lock["python"]["source"] == "host"
    again = away.submit("say.py")
    assert again.out == done.out and "pip:" not in again.err
    assert away.mlw("environment", "list", "-t", "box").out.count(lock["digest"][:12]) == 1
