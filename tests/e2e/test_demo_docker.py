"""`make demo-docker`: the walkthrough of the article on a disposable local machine with SSH and Docker."""

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
    """Return the command lines of running processes that contain the path of the folder."""
    lines = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if os.fsencode(place) in text:
            lines.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return lines


@pytest.fixture
def visitor(laptop, engine, tmp_path):
    """A user with Docker who has never used mlw."""
    need("sshd")
    laptop.use_engine(engine)
    laptop.env.update(TMPDIR=str(tmp_path / "tmp"), DEMO_IMAGE=engine.image)
    (tmp_path / "tmp").mkdir()
    return laptop


def test_complete_demo(visitor, engine, tmp_path):
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
    """An image whose Python waits before it starts the script of a run."""
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
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: mlw receives it, too
    rest = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 130, rest
    assert "cleaning up" in rest
    assert list((tmp_path / "tmp").iterdir()) == []
    assert (engine.containers(), servers(tmp_path / "tmp")) == ([], [])


def test_missing_image_and_proxy_password_not_stored(visitor, engine, tmp_path):
    """The demo names what remains after a failure; those files do not contain a proxy password."""
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


def test_remote_engine_is_refused(visitor, tmp_path):
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
    ("answer", "message"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "is not allowed to use Docker"),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            "Docker does not respond: Cannot connect",
        ),
    ],
)
def test_engine_errors_are_explained(visitor, tmp_path, answer, message):
    path = programs(tmp_path / "bin", docker=f"echo '{answer}' >&2\nexit 1", podman="echo no >&2; exit 1")
    done = demo(visitor, PATH=f"{path}:{visitor.env['PATH']}")
    assert done.code == 1, done
    assert re.search(rf"^error: .*{message}.*\nhint: ", done.err, re.MULTILINE), done
    assert list((tmp_path / "tmp").iterdir()) == []


def path_without(program: str, path: str, folder: Path) -> str:
    """Create a folder with links to all programs on the PATH except one, and return the folder."""
    folder.mkdir()
    for place in path.split(":")[::-1]:
        for entry in Path(place).iterdir() if Path(place).is_dir() else ():
            if entry.name != program:
                (folder / entry.name).unlink(missing_ok=True)
                (folder / entry.name).symlink_to(entry)
    return str(folder)


def test_demo_without_ps(visitor, tmp_path):
    path = path_without("ps", visitor.env["PATH"], tmp_path / "bin")
    done = demo(visitor, PATH=path, DEMO_IMAGE="127.0.0.1:1/no-such-image:1")
    assert done.code not in (0, 130) and "Traceback" not in done.err, done
    (place,) = (tmp_path / "tmp").iterdir()
    assert servers(place) == []


def test_cleanup_after_unexpected_error(visitor, engine, tmp_path):
    """A folder is missing while a run is active: the run ends, and cleanup works as after any other error."""
    instead = "submit --detach -c my_dsvm -- sleep 600"
    script = f'[ "$1 $2" = "history download" ] && {MLW} {instead} >&2 && exit\nexec {MLW} "$@"'
    wrapper = programs(tmp_path / "bin", mlw=script) + "/mlw"
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


def test_missing_mlw(visitor, tmp_path):
    done = subprocess.run(
        [*words()[:-1], "/not/there/mlw"], env=visitor.env, cwd=visitor.home, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    assert "error: [Errno 2] No such file or directory: '/not/there/mlw'" in done.stderr
    wait_until(lambda: servers(tmp_path / "tmp") == [], "the door that was just opened is closed")


@pytest.mark.parametrize("below", ["", "mine"])
def test_folder_writable_by_others_is_refused(visitor, tmp_path, below):
    """Other users could replace the demo's machine with their own, with their key."""
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
    ("missing", "message"),
    [(("docker", "podman"), "neither docker nor podman is installed"), (("sshd",), "sshd is not installed")],
)
def test_missing_program_is_named(script, monkeypatch, capsys, missing, message):
    monkeypatch.setattr(script, "find", lambda program: None if program in missing else f"/usr/bin/{program}")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["demo-docker", "mlw"])
    assert script.main() == 1
    assert re.search(rf"^error: {message}\nhint: ", capsys.readouterr().err, re.MULTILINE)


def test_all_missing_programs_are_listed(script, monkeypatch, capsys, tmp_path):
    missing = ("ssh-keygen", "sshd", "docker", "podman")
    monkeypatch.setattr(script, "find", lambda program: None if program in missing else f"/usr/bin/{program}")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["demo-docker", "mlw"])
    tmp_path.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert script.main() == 1
    message = capsys.readouterr().err
    assert re.findall("^error: (.*)", message, re.MULTILINE) == [
        "ssh-keygen is not installed",
        "sshd is not installed",
        "neither docker nor podman is installed",
        f"{tmp_path} can be changed by other users",
    ]
    assert message.count("\nhint: ") == 4 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("user", ["ada@corp", "CORP+ada", "ada*"])
def test_user_names_are_not_patterns(script, monkeypatch, tmp_path, user):
    """For sshd, AllowUsers ada@corp means the user ada connecting from corp."""
    sshd = need("sshd")
    monkeypatch.setattr(script, "user_name", lambda: user)
    machine = script.Machine(tmp_path, script.Engine({}))
    settings = subprocess.run([sshd, "-T", "-f", machine.config], capture_output=True, text=True)
    assert "authenticationmethods publickey" in settings.stdout and "allowusers" not in settings.stdout, settings


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop the process even if the test fails."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_sshd_that_ignores_sigterm_is_killed(script, monkeypatch, tmp_path):
    """A shell script replaces sshd. Its child process is killed, too."""
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
def test_demo_with_podman_only(laptop, podman, tmp_path, docker):
    need("sshd")
    path = path_without("docker", laptop.env["PATH"], tmp_path / "bin")
    if docker == "down":
        down = "echo Cannot connect to the Docker daemon at unix:///var/run/docker.sock. >&2\nexit 1"
        path = programs(tmp_path / "down", docker=down) + f":{path}"
    # Debian's podman has no init program, and a bridge would change this computer's network.
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
