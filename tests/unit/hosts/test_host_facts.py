"""Facts about a machine: parsing of real output, and complete facts of this machine and of unusual ones."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlworkbench.hosts.host_facts import Engine, Facts
from mlworkbench.remote import engine_facts, system_facts
from mlworkbench.remote.shared.failure import failure
from tests.interpreters import oldest_and_newest

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 27 0:40 / /home rw,relatime shared:5 - nfs4 server:/home rw,vers=4.2
32 31 0:41 / /home/ann rw - ext4 /dev/vdb rw
33 27 0:42 / /mnt/my\\040disk rw - fuse.sshfs me@there: rw
34 27 0:43 / /data rw - ext4 /dev/vdc rw
35 27 0:44 / /data rw - lustre mds@tcp:/x rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/tmp/x", "ext4"),
        ("/home/bob/.mlw", "nfs4"),
        ("/home/ann/.mlw", "ext4"),
        ("/homeless", "ext4"),
        ("/mnt/my disk/runs", "fuse.sshfs"),
        ("/data/runs", "lustre"),
    ],
)
def test_filesystem_of_the_nearest_mount(path, kind):
    assert system_facts.filesystem_type(MOUNTS, path) == kind


def test_filesystem_without_mounts():
    assert system_facts.filesystem_type("", "/home") is None


def test_memory_limit_of_a_container():
    text = "MemTotal:       24684100 kB\nMemFree: 1 kB\nMemAvailable:   12000000 kB\nHugePages_Total:       0\n"
    assert system_facts.parse_memory(text, None) == {
        "total": 24684100 * 1024,
        "available": 12000000 * 1024,
        "limit": None,
    }
    assert system_facts.parse_memory(text, 2 * 10**9)["limit"] == 2 * 10**9
    assert system_facts.parse_memory(text, 2**63 - 4096)["limit"] is None  # "no limit" in cgroup v1
    assert system_facts.parse_memory("", None) == {"total": None, "available": None, "limit": None}


def test_driver_of_the_open_and_the_closed_module():
    closed = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12.2.0"
    )
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)"
    assert system_facts.parse_driver_version(closed) == "535.104.05"
    assert system_facts.parse_driver_version(opened) == "570.86.15"
    assert system_facts.parse_driver_version("") is None


def test_os_release():
    text = '# a comment\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n\n'
    assert system_facts.parse_os_release(text) == {
        "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)",
        "ID": "debian",
        "VERSION_ID": "12",
    }


@pytest.mark.parametrize(
    ("texts", "kills"),
    [
        ([""], None),
        (["[Login]\n#KillUserProcesses=no\n"], False),
        (["[Login]\n#KillUserProcesses=yes\n"], True),
        (["[Login]\n#KillUserProcesses=no\n", "[Login]\nKillUserProcesses=yes\n"], True),
        (["KillUserProcesses=yes", "KillUserProcesses = no"], False),
        (["KillUserProcesses=yes", "#KillUserProcesses=no"], True),
        (["KillExcludeUsers=root"], None),
    ],
)
def test_whether_logind_kills_processes_at_logout(texts, kills):
    assert system_facts.kill_user_processes(texts) is kills


# -- engines: real output ---------------------------------------------------------------------------

DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
DOCKER = {
    "ServerVersion": "28.2.2",
    "OSType": "linux",
    "Architecture": "x86_64",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"],
    "Runtimes": {"runc": {}, "nvidia": {}},
}


def test_missing_engine():
    assert engine_facts.docker_facts(None, None, "", "") is None


def test_working_docker(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    facts = engine_facts.docker_facts("/usr/bin/docker", 0, json.dumps(DOCKER), "WARNING: No swap limit support\n")
    assert facts is not None
    facts.pop("selinux")
    assert facts == {
        "socket": "/run/user/1000/docker.sock",
        "path": "/usr/bin/docker",
        "error": None,
        "code": None,
        "program": "docker",
        "version": "28.2.2",
        "os": "linux",
        "arch": "x86_64",
        "rootless": True,
        "nvidia": True,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"Runtimes": {"runc": {}}}, False),
        ({"Runtimes": None}, False),
        ({"Runtimes": {}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, True),
    ],
)
def test_docker_detects_gpus_by_runtime_or_cdi(changes, expected):
    assert engine_facts.docker_facts("/d", 0, json.dumps({**DOCKER, **changes}), "")["nvidia"] is expected


def test_docker_without_permission():
    empty = json.dumps({"ServerVersion": "", "Runtimes": None, "SecurityOptions": None})
    assert engine_facts.docker_facts("/d", 1, empty, DENIED + ": Get ...\nsecond line\n")["error"].startswith(DENIED)
    old = json.dumps({"ServerVersion": "", "ServerErrors": [DENIED]})  # older versions exit with 0
    assert engine_facts.docker_facts("/d", 0, old, "")["error"] == DENIED


def test_docker_without_usable_output():
    assert engine_facts.docker_facts("/d", None, "", "")["error"] == "it did not respond in time"
    assert engine_facts.docker_facts("/d", 1, "[]", "")["error"] == "it exited with code 1 and printed nothing"
    assert engine_facts.docker_facts("/d", 1, "not json", "boom\n")["error"] == "boom"


PODMAN = """\
time="2026-11-16T04:00:00Z" level=warning msg="\\"/\\" is not a shared mount, this could cause issues"
cannot clone: Operation not permitted
Error: cannot re-exec process
"""


def podman(code, stdout, stderr, failure=None):
    return engine_facts.podman_facts("/usr/bin/podman", code, stdout, stderr, failure)


def test_podman_errors_are_reported_without_warnings():
    message = "cannot clone: Operation not permitted; Error: cannot re-exec process"
    assert podman(125, "", PODMAN)["error"] == message
    long_output = "first line\nsecond line\n" * 9 + PODMAN
    assert podman(125, "", long_output)["error"] == message
    assert podman(125, "", PODMAN.splitlines()[0])["error"] == "it exited with code 125 and printed nothing"


def test_podman():
    facts = podman(0, "podman version 4.3.1\n", "")
    assert (facts["program"], facts["version"], facts["os"], facts["error"]) == ("podman", "4.3.1", "linux", None)
    assert podman(0, "podman version 4.3.1\n", "", failure("x", "no IDs"))["error"] == "no IDs"
    assert engine_facts.podman_facts(None, None, "", "", None) is None
    assert engine_facts.podman_version("docker version 4.3.1") == "4.3.1", "a link to podman"
    assert engine_facts.podman_version("Docker version 28.2.2, build e6534b4") is None


def test_docker_that_is_podman_is_only_asked_for_its_version(tmp_path, monkeypatch):
    text = f'echo "$@" >> {tmp_path}/asked; echo Emulate Docker CLI using podman. >&2; echo podman version 5.1.0'
    program(tmp_path / "bin", "docker", text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    facts = system_facts.gather(str(tmp_path))["docker"]
    assert (facts["program"], facts["version"], facts["path"]) == ("podman", "5.1.0", f"{tmp_path}/bin/docker")
    assert (tmp_path / "asked").read_text() == "--version\n"


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        ("", False),
        ("bob:100000:65536\n", False),
        ("ada:100000:65536\n", True),
        ("bob:1:2\n1000:100000:65536\n", True),
        ("ada:100000:0\n", False),
        ("ada\nada:1\n", False),
    ],
)
def test_subordinate_ids(text, enough):
    assert engine_facts.has_range(text, "ada", 1000) is enough


def test_missing_requirements_of_rootless_podman(tmp_path, monkeypatch):
    files = {"/etc/subuid": "ada:100000:65536\n", "/etc/subgid": "", "/etc/nsswitch.conf": "passwd: files sss\n"}
    monkeypatch.setattr(engine_facts, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(engine_facts, "which", lambda name: f"/usr/bin/{name}")
    message = "no subordinate IDs for ada in /etc/subgid, which rootless podman needs"
    assert engine_facts.podman_problem("ada", "") == failure(engine_facts.NO_IDS, message)
    refused = engine_facts.podman_problem("ada", "unshare: Operation not permitted")
    assert refused["code"] == engine_facts.NO_NAMESPACES and "Operation not permitted" in refused["message"]
    files["/etc/nsswitch.conf"] += "subid: sss\n"
    assert engine_facts.podman_problem("ada", "") is None, "a directory service provides them"
    monkeypatch.setattr(engine_facts, "which", lambda name: None)
    message = "newuidmap, which rootless podman needs, is not installed"
    assert engine_facts.podman_problem("ada", "") == failure(engine_facts.NO_UIDMAP, message)


# -- complete facts --------------------------------------------------------------------------------


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_this_machine(tmp_path):
    facts = system_facts.gather(str(tmp_path / "not" / "there" / "yet"))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["facts"] == system_facts.FACTS
    assert facts["user"]["uid"] == os.getuid()
    assert facts["python"]["executable"] == sys.executable
    assert facts["cpu"]["usable"] == len(os.sched_getaffinity(0))
    assert facts["store"]["folder"] == str(tmp_path / "not" / "there" / "yet")
    assert 0 < facts["store"]["free"] <= facts["store"]["total"]
    assert 0 < facts["memory"]["available"] <= facts["memory"]["total"]
    assert facts["os"]["system"] == "Linux" and facts["os"]["libc"]
    assert not (tmp_path / "not").exists()  # gathering facts creates no folders


def test_hanging_engine_times_out_and_other_facts_remain(tmp_path, monkeypatch):
    child = tmp_path / "child"  # file with the PID of a process that keeps the pipe open
    program(tmp_path / "bin", "docker", f"sleep 1000 & echo $! > {child}; wait")
    program(tmp_path / "bin", "podman", "echo no space left >&2; exit 125")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    facts = system_facts.gather(str(tmp_path), timeout=1.0)
    os.kill(int(child.read_text()), signal.SIGKILL)
    assert facts["docker"]["error"] == "it did not respond in time"
    assert facts["podman"]["error"] == "no space left"
    assert facts["os"]["kernel"] and facts["time"] <= time.time()


def test_machine_without_anything(tmp_path, monkeypatch):
    program(tmp_path / "bin", "docker", "exit 0")
    (tmp_path / "bin" / "docker").write_bytes(b"\x7fELF nonsense")  # not a valid program
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.delenv("SHELL", raising=False)
    monkeypatch.setattr(system_facts, "_read", lambda path: "")
    facts = system_facts.gather("/nonexistent/store")
    assert facts["docker"] is None and facts["podman"] is None
    assert facts["user"]["home_writable"] is False
    assert facts["boot_id"] is None and facts["memory"]["total"] is None and facts["store"]["network"] is None
    assert Facts.from_json(facts).user.home == "/nonexistent"


@pytest.mark.parametrize(("version", "python"), oldest_and_newest((3, 8)))
def test_oldest_and_newest_python_of_hosts(version, python, tmp_path):
    folder = Path(system_facts.__file__).parents[1]
    code = "import sys, json; sys.path.insert(0, sys.argv[1])\nfrom remote.system_facts import gather\n"
    code += "print(json.dumps(gather(sys.argv[2])))"
    command = [python, "-I", "-S", "-c", code, str(folder), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["python"]["version"].startswith(".".join(map(str, version)))


def test_python_named_by_a_project_is_not_started(tmp_path, monkeypatch):
    program(tmp_path / "bin", "python9", f"touch {tmp_path}/started; echo Python 9.9")
    python = tmp_path / "bin" / "python9"
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("python9", str(python)):
        facts = system_facts.gather(str(tmp_path), python=name, named=True)["script"]
        assert facts == {"executable": str(python), "version": None, "tried": False}
    assert system_facts.gather(str(tmp_path), python="/nowhere/python", named=True)["script"]["executable"] is None
    assert not (tmp_path / "started").exists()
    assert system_facts.gather(str(tmp_path), python="python9")["script"]["version"] == "9.9"


def test_facts_of_an_older_or_newer_host():
    assert Facts.from_json({}) == Facts()
    facts = Facts.from_json(
        {"facts": 9, "os": {"arch": "riscv64", "new": 1}, "cpu": None, "docker": {"path": "/d"}, "x": 2}
    )
    assert facts.os.arch == "riscv64" and facts.os.libc is None
    assert facts.docker == Engine(path="/d")


def test_script_python_and_reachability(tmp_path):
    assert system_facts.parse_python_version("/usr/bin/python3", 0, "Python 3.11.2\n", "") == {
        "executable": "/usr/bin/python3",
        "version": "3.11.2",
    }
    assert system_facts.parse_python_version("/x", 1, "", "boom")["version"] is None
    assert system_facts.parse_python_version(None, None, "", "") == {"executable": None, "version": None}
    facts = system_facts.gather(str(tmp_path), python="no-such-python", reach="no-such-host.invalid")
    assert facts["script"] == {"executable": None, "version": None}
    assert facts["reach"]["host"] == "no-such-host.invalid" and facts["reach"]["way"] is False
    assert facts["reach"]["error"] and system_facts.gather(str(tmp_path))["reach"] is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        reach = system_facts.gather(str(tmp_path), reach=address)["reach"]
    assert (reach["host"], reach["way"]) == (address, True)
    assert system_facts.gather(str(tmp_path), reach=address)["reach"]["way"] is False, "the server is closed"
