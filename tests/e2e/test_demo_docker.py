"""`make demo-docker`: the walk of the article against a throw-away machine with SSH and Docker, made of this one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import MLW, Done, need
from tests.machines.network import wait_until

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
        "mlw submit -c",
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
    assert "cleaning up" in rest
    assert list((tmp_path / "tmp").iterdir()) == []
    assert (engine.containers(), servers(tmp_path / "tmp")) == ([], [])


def test_an_image_that_nobody_has_and_a_password_that_reaches_no_file(visitor, engine, tmp_path):
    """What is left behind after a failure is named, and has no password of a proxy in it."""
    proxies = {"HTTPS_PROXY": "http://ada:canary-word@127.0.0.1:1", "no_proxy": "lab.example"}
    done = demo(visitor, DEMO_IMAGE="127.0.0.1:1/no-such-image:1", **proxies)
    assert done.code not in (0, 130), done
    assert "no-such-image:1" in done.err and "DEMO_IMAGE" in done.err, done
    (place,) = (tmp_path / "tmp").iterdir()
    assert f"rm -r {place}" in done.err and servers(place) == []
    assert "HTTPS_PROXY" in done.out and "canary-word" not in done.out + done.err, done
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if b"canary-word" in path.read_bytes()] == []
    assert '"no_proxy=lab.example"' in (place / "machine" / "sshd_config").read_text()


def test_an_engine_that_is_elsewhere(visitor, tmp_path):
    path = programs(tmp_path / "bin", podman="exit 1") + f":{visitor.env['PATH']}"
    done = demo(visitor, DOCKER_HOST="tcp://127.0.0.1:1", PATH=path)
    assert done.code == 1, done
    assert done.err.startswith("\nerror: Docker is configured to use a different machine: tcp://127.0.0.1:1\nhint: "), (
        done
    )


def programs(folder: Path, **scripts: str) -> str:
    folder.mkdir()
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "is not allowed to use Docker"),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            "Docker does not respond: Cannot connect",
        ),
    ],
)
def test_an_engine_that_refuses(visitor, tmp_path, answer, words):
    made = programs(tmp_path / "bin", docker=f"echo '{answer}' >&2\nexit 1", podman="echo no >&2; exit 1")
    done = demo(visitor, PATH=f"{made}:{visitor.env['PATH']}")
    assert done.code == 1, done
    assert re.search(rf"^error: .*{words}.*\nhint: ", done.err, re.MULTILINE), done
    assert list((tmp_path / "tmp").iterdir()) == []


def path_without(program: str, path: str, folder: Path) -> str:
    """A folder with all that is on the path, less one."""
    folder.mkdir()
    for place in path.split(":")[::-1]:
        for entry in Path(place).iterdir() if Path(place).is_dir() else ():
            if entry.name != program:
                (folder / entry.name).unlink(missing_ok=True)
                (folder / entry.name).symlink_to(entry)
    return str(folder)


def test_where_ps_is_missing(visitor, tmp_path):
    path = path_without("ps", visitor.env["PATH"], tmp_path / "bin")
    done = demo(visitor, PATH=path, DEMO_IMAGE="127.0.0.1:1/no-such-image:1")
    assert done.code not in (0, 130) and "Traceback" not in done.err, done
    (place,) = (tmp_path / "tmp").iterdir()
    assert servers(place) == []


def test_what_nobody_thought_of(visitor, engine, tmp_path):
    """A folder is not there, and a run goes on: that ends, and the machine is left as after any other trouble."""
    instead = "submit --detach -c my_dsvm -- sleep 600"
    own = f'[ "$1 $2" = "history download" ] && {MLW} {instead} >&2 && exit\nexec {MLW} "$@"'
    wrapper = programs(tmp_path / "bin", mlw=own) + "/mlw"
    done = subprocess.run(
        [*words()[:-1], wrapper], env=visitor.env, cwd=visitor.home, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    assert "demo/results" in done.stderr and done.stderr.count("RunId: ") > 1, done
    (place,) = (tmp_path / "tmp").iterdir()
    assert f"rm -r {place}" in done.stderr
    assert not (place / "demo" / "aml_config" / "my_dsvm.compute").exists()
    assert not (place / "machine" / "home" / ".mlw").exists()
    assert (engine.containers(), servers(place)) == ([], [])


def test_an_mlw_that_is_not_there(visitor, tmp_path):
    done = subprocess.run(
        [*words()[:-1], "/not/there/mlw"], env=visitor.env, cwd=visitor.home, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    assert "error: [Errno 2] No such file or directory: '/not/there/mlw'" in done.stderr
    wait_until(lambda: servers(tmp_path / "tmp") == [], "the door that was just opened is closed")


@pytest.mark.parametrize("below", ["", "mine"])
def test_a_folder_that_others_may_change(visitor, tmp_path, below):
    """They could put another one in the place of the demo's, with a key of theirs."""
    (tmp_path / "tmp").chmod(0o777)
    (tmp_path / "tmp" / below).mkdir(exist_ok=True)
    done = demo(visitor, TMPDIR=str(tmp_path / "tmp" / below))
    assert done.code == 1, done
    assert re.search(
        rf"^error: {tmp_path}/tmp can be changed by other users\nhint: .*TMPDIR", done.err, re.MULTILINE
    ), done
    assert [path.name for path in (tmp_path / "tmp").rglob("*")] == [name for name in [below] if name]


@pytest.fixture
def script(monkeypatch) -> ModuleType:
    loader = SourceFileLoader("demo_docker", str(DEMO))
    module = module_from_spec(spec_from_loader("demo_docker", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("missing", "words"),
    [(("docker", "podman"), "neither docker nor podman is installed"), (("sshd",), "sshd is not installed")],
)
def test_a_program_that_is_missing(script, monkeypatch, capsys, missing, words):
    monkeypatch.setattr(script, "find", lambda program: None if program in missing else f"/usr/bin/{program}")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["demo-docker", "mlw"])
    assert script.main() == 1
    assert re.search(rf"^error: {words}\nhint: ", capsys.readouterr().err, re.MULTILINE)


def test_all_that_is_missing_is_listed_at_once(script, monkeypatch, capsys, tmp_path):
    missing = ("ssh-keygen", "sshd", "docker", "podman")
    monkeypatch.setattr(script, "find", lambda program: None if program in missing else f"/usr/bin/{program}")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["demo-docker", "mlw"])
    tmp_path.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert script.main() == 1
    said = capsys.readouterr().err
    assert re.findall("^error: (.*)", said, re.MULTILINE) == [
        "ssh-keygen is not installed",
        "sshd is not installed",
        "neither docker nor podman is installed",
        f"{tmp_path} can be changed by other users",
    ]
    assert said.count("\nhint: ") == 4 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("user", ["ada@corp", "CORP+ada", "ada*"])
def test_names_of_users_are_no_patterns(script, monkeypatch, tmp_path, user):
    """For sshd, AllowUsers ada@corp is an ada who comes from corp."""
    sshd = need("sshd")
    monkeypatch.setattr(script, "user_name", lambda: user)
    made = script.Machine(tmp_path, script.Engine({}))
    told = subprocess.run([sshd, "-T", "-f", made.config], capture_output=True, text=True)
    assert "authenticationmethods publickey" in told.stdout and "allowusers" not in told.stdout, told


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever the test finds."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_an_sshd_that_does_not_end(script, monkeypatch, tmp_path):
    """Neither it nor what it started goes on."""
    program = "sleep 600 & trap '' TERM; echo up; wait"
    machine = script.Machine.__new__(script.Machine)
    machine._process = process = subprocess.Popen(
        ["bash", "-c", program], stdout=subprocess.PIPE, start_new_session=True
    )
    with process.stdout, ending(process):
        assert process.stdout.readline() == b"up\n"
        monkeypatch.setattr(script, "PATIENCE", 0.2)
        below = script.children(process.pid)
        machine.stop()
    assert process.returncode == -signal.SIGKILL and below
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "its child has ended")


@pytest.mark.parametrize("docker", ["absent", "down"])
def test_where_only_podman_works(laptop, podman, tmp_path, docker):
    need("sshd")
    path = path_without("docker", laptop.env["PATH"], tmp_path / "bin")
    if docker == "down":
        down = "echo Cannot connect to the Docker daemon at unix:///var/run/docker.sock. >&2\nexit 1"
        path = programs(tmp_path / "down", docker=down) + f":{path}"
    # Debian's podman comes without an init program; and a bridge would be one more thing on this computer.
    settings = Path(podman.env["CONTAINERS_CONF"]).read_text()
    more = f'[containers]\ninit_path = "{need("tini")}"\nnetns = "none"'
    (tmp_path / "containers.conf").write_text(settings.replace("[containers]", more))
    laptop.env.update(podman.env, TMPDIR=str(tmp_path), DEMO_IMAGE=podman.image, PATH=path)
    laptop.env["CONTAINERS_CONF"] = str(tmp_path / "containers.conf")
    done = demo(laptop)
    assert done.code == 0, done
    assert "loss.svg  model.json" in done.out
    assert ("# Docker does not respond: Cannot connect" in done.out) == (docker == "down"), done
    assert podman.containers() == []
