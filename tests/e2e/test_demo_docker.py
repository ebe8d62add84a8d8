"""`make demo-docker`: the walk of the article against a throw-away machine with SSH and Docker, made of this one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from tests.conftest import MLW, Done, need

DEMO = Path(__file__).parents[2] / "scripts" / "demo-docker"


def words() -> list[str]:
    return [sys.executable, str(DEMO), str(MLW)]


def demo(laptop, **more: str) -> Done:
    done = subprocess.run(
        words(), env={**laptop.env, **more}, cwd=laptop.home, capture_output=True, stdin=subprocess.DEVNULL, timeout=240
    )
    return Done(done.returncode, done.stdout, done.stderr)


def servers(place: Path) -> list[str]:
    """Command lines of whatever still runs with something below the folder, or has a connection into it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if os.fsencode(place) in text:
            found.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.fixture
def visitor(laptop, engine, tmp_path):
    """Somebody with Docker who has never used mlw."""
    need("sshd")
    laptop.uses(engine)
    laptop.env.update(TMPDIR=str(tmp_path / "tmp"), DEMO_IMAGE=engine.image)
    (tmp_path / "tmp").mkdir()
    return laptop


def test_the_whole_walk(visitor, engine, tmp_path):
    done = demo(visitor)
    assert done.code == 0, done
    shown = re.findall(r"^\$ (mlw \S+ \S+)", done.out, re.MULTILINE)
    assert shown == [
        "mlw project create",
        "mlw computetarget attach",
        "mlw computetarget check",
        "mlw project validate",
        "mlw experiment prepare",
        "mlw experiment submit",
        "mlw history list",
        "mlw history metrics",
        "mlw history download",
        "mlw computetarget detach",
    ], done
    assert "\nbaseDockerImage: " + engine.image in done.out
    assert "Status:    Completed" in done.err and "epoch  60" in done.out
    assert "loss.svg  model.json" in done.out, "the outputs came home"
    (place,) = (tmp_path / "tmp").iterdir()
    assert f"rm -r {place}" in done.out
    assert f" in {place}/machine/home/.mlw (" in done.out, "runs are kept in the home that the demo gave the machine"
    assert (place / "demo" / "results" / "loss.svg").read_text().startswith("<svg")
    assert not (place / "machine" / "home" / ".mlw").exists()
    assert not (place / "demo" / "aml_config" / "my_dsvm.compute").exists()
    assert list(visitor.home.iterdir()) == [], "nothing of the visitor's own home was touched"
    assert (engine.containers(), servers(place)) == ([], [])


@pytest.fixture
def slow_image(engine) -> Iterator[str]:
    """Its Python waits before it begins with the script of a run."""
    site = Path("/usr/lib", os.path.basename(os.path.realpath("/usr/bin/python3")), "sitecustomize.py")
    text = "import os, time\nif 'MLW_RUN_ID' in os.environ:\n    print('up', flush=True)\n    time.sleep(600)\n"
    (engine.folder / "sitecustomize.py").write_text(text)
    engine.docker("create", "--name", "slow", engine.image)
    engine.docker("cp", str(engine.folder / "sitecustomize.py"), f"slow:{site}")
    engine.docker("commit", "slow", "mlw-slow:1")
    engine.docker("rm", "slow")
    yield "mlw-slow:1"
    engine.docker("rmi", "--force", "mlw-slow:1")


def test_ctrl_c_leaves_nothing(visitor, engine, slow_image, tmp_path):
    env = {**visitor.env, "DEMO_IMAGE": slow_image}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(words(), env=env, start_new_session=True, **pipes)
    assert b"up\n" in iter(process.stdout.readline, b""), "the script runs"
    assert len(engine.containers()) == 1
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: mlw gets it, too
    rest = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 130, rest
    assert "tidying up" in rest
    assert list((tmp_path / "tmp").iterdir()) == []
    assert (engine.containers(), servers(tmp_path / "tmp")) == ([], [])


def test_an_image_that_nobody_has(visitor, engine, tmp_path):
    done = demo(visitor, DEMO_IMAGE="127.0.0.1:1/no-such-image:1")
    assert done.code not in (0, 130), done
    assert "no-such-image:1" in done.err and "DEMO_IMAGE" in done.err, done
    (place,) = (tmp_path / "tmp").iterdir()
    assert f"rm -r {place}" in done.err and servers(place) == []


def test_an_engine_that_is_elsewhere(visitor):
    done = demo(visitor, DOCKER_HOST="tcp://127.0.0.1:1")
    assert done.code == 1, done
    assert done.err.startswith("\nerror: Docker is set up to be elsewhere: tcp://127.0.0.1:1\nhint: "), done


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "may not use Docker"),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            "Docker does not answer: Cannot connect",
        ),
    ],
)
def test_an_engine_that_refuses(visitor, tmp_path, answer, words):
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit 1\n")
    program.chmod(0o755)
    done = demo(visitor, PATH=f"{program.parent}:{visitor.env['PATH']}")
    assert done.code == 1, done
    assert re.search(rf"^error: .*{words}.*\nhint: ", done.err, re.MULTILINE), done
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("missing", "words"),
    [(("docker", "podman"), "neither docker nor podman is installed"), (("sshd",), "sshd is not installed")],
)
def test_a_program_that_is_missing(monkeypatch, capsys, missing, words):
    loader = SourceFileLoader("demo_docker", str(DEMO))
    module = module_from_spec(spec_from_loader("demo_docker", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "find", lambda program: None if program in missing else f"/usr/bin/{program}")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["demo-docker", "mlw"])
    assert module.main() == 1
    assert re.search(rf"^error: {words}\nhint: ", capsys.readouterr().err, re.MULTILINE)


def test_with_podman_alone(laptop, podman, tmp_path):
    need("sshd")
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in laptop.env["PATH"].split(":")[::-1]:
        for entry in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if entry.name != "docker":
                (programs / entry.name).unlink(missing_ok=True)
                (programs / entry.name).symlink_to(entry)
    # Debian's podman comes without an init program; and a bridge would be one more thing on this computer.
    settings = Path(podman.env["CONTAINERS_CONF"]).read_text()
    more = f'[containers]\ninit_path = "{need("tini")}"\nnetns = "none"'
    (tmp_path / "containers.conf").write_text(settings.replace("[containers]", more))
    laptop.env.update(podman.env, TMPDIR=str(tmp_path), DEMO_IMAGE=podman.image, PATH=str(programs))
    laptop.env["CONTAINERS_CONF"] = str(tmp_path / "containers.conf")
    done = demo(laptop)
    assert done.code == 0, done
    assert "loss.svg  model.json" in done.out
    assert podman.containers() == []
