"""What is found out about a machine: texts as machines gave them, and the whole on this one and on odd ones."""

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

from mlworkbench.hosts.facts import Engine, Facts
from mlworkbench.remote import engine_facts, facts
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
def test_filesystem_is_that_of_the_nearest_mount(path, kind):
    assert facts.filesystem(MOUNTS, path) == kind


def test_filesystem_where_there_are_no_mounts_to_read():
    assert facts.filesystem("", "/home") is None


def test_memory_knows_the_limit_of_a_container():
    text = "MemTotal:       24684100 kB\nMemFree: 1 kB\nMemAvailable:   12000000 kB\nHugePages_Total:       0\n"
    assert facts.memory(text, None) == {"total": 24684100 * 1024, "available": 12000000 * 1024, "limit": None}
    assert facts.memory(text, 2 * 10**9)["limit"] == 2 * 10**9
    assert facts.memory(text, 2**63 - 4096)["limit"] is None  # what cgroup v1 says for: none
    assert facts.memory("", None) == {"total": None, "available": None, "limit": None}


def test_driver_of_the_open_and_of_the_closed_module():
    closed = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12.2.0"
    )
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)"
    assert facts.driver(closed) == "535.104.05"
    assert facts.driver(opened) == "570.86.15"
    assert facts.driver("") is None


def test_os_release():
    text = '# a comment\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n\n'
    assert facts.os_release(text) == {
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
def test_what_logind_does_at_the_end_of_a_session(texts, kills):
    assert facts.kill_user_processes(texts) is kills


# -- engines: what they really print ---------------------------------------------------------------

DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
DOCKER = {
    "ServerVersion": "28.2.2",
    "OSType": "linux",
    "Architecture": "x86_64",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"],
    "Runtimes": {"runc": {}, "nvidia": {}},
}


def test_an_engine_that_is_not_there():
    assert engine_facts.docker(None, None, "", "") is None


def test_docker_at_work(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    found = engine_facts.docker("/usr/bin/docker", 0, json.dumps(DOCKER), "WARNING: No swap limit support\n")
    assert found is not None
    found.pop("selinux")
    assert found == {
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
    ("more", "known"),
    [
        ({"Runtimes": {"runc": {}}}, False),
        ({"Runtimes": None}, False),
        ({"Runtimes": {}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, True),
    ],
)
def test_docker_knows_of_gpus_by_its_runtime_or_by_cdi(more, known):
    assert engine_facts.docker("/d", 0, json.dumps({**DOCKER, **more}), "")["nvidia"] is known


def test_docker_that_this_user_may_not_use():
    empty = json.dumps({"ServerVersion": "", "Runtimes": None, "SecurityOptions": None})
    assert engine_facts.docker("/d", 1, empty, DENIED + ": Get ...\nsecond line\n")["error"].startswith(DENIED)
    old = json.dumps({"ServerVersion": "", "ServerErrors": [DENIED]})  # exit code 0, and nothing on stderr
    assert engine_facts.docker("/d", 0, old, "")["error"] == DENIED


def test_docker_that_says_nothing_of_use():
    assert engine_facts.docker("/d", None, "", "")["error"] == "it did not respond in time"
    assert engine_facts.docker("/d", 1, "[]", "")["error"] == "it exited with code 1 and printed nothing"
    assert engine_facts.docker("/d", 1, "not json", "boom\n")["error"] == "boom"


PODMAN = """\
time="2026-11-16T04:00:00Z" level=warning msg="\\"/\\" is not a shared mount, this could cause issues"
cannot clone: Operation not permitted
Error: cannot re-exec process
"""


def podman(code, out, err, trouble=None):
    return engine_facts.podman("/usr/bin/podman", code, out, err, trouble)


def test_what_podman_ended_with_is_told_not_what_it_warned_of():
    told = "cannot clone: Operation not permitted; Error: cannot re-exec process"
    assert podman(125, "", PODMAN)["error"] == told
    many = "first line\nsecond line\n" * 9 + PODMAN
    assert podman(125, "", many)["error"] == told
    assert podman(125, "", PODMAN.splitlines()[0])["error"] == "it exited with code 125 and printed nothing"


def test_podman():
    found = podman(0, "podman version 4.3.1\n", "")
    assert (found["program"], found["version"], found["os"], found["error"]) == ("podman", "4.3.1", "linux", None)
    assert podman(0, "podman version 4.3.1\n", "", failure("x", "no IDs"))["error"] == "no IDs"
    assert engine_facts.podman(None, None, "", "", None) is None
    assert engine_facts.podman_version("docker version 4.3.1") == "4.3.1", "a link to podman"
    assert engine_facts.podman_version("Docker version 28.2.2, build e6534b4") is None


def test_docker_that_is_podman_is_asked_for_its_version_only(tmp_path, monkeypatch):
    text = f'echo "$@" >> {tmp_path}/asked; echo Emulate Docker CLI using podman. >&2; echo podman version 5.1.0'
    program(tmp_path / "bin", "docker", text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = facts.gather(str(tmp_path))["docker"]
    assert (found["program"], found["version"], found["path"]) == ("podman", "5.1.0", f"{tmp_path}/bin/docker")
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


def test_what_podman_lacks_for_an_ordinary_user(tmp_path, monkeypatch):
    files = {"/etc/subuid": "ada:100000:65536\n", "/etc/subgid": "", "/etc/nsswitch.conf": "passwd: files sss\n"}
    monkeypatch.setattr(engine_facts, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(engine_facts, "which", lambda name: f"/usr/bin/{name}")
    told = "no subordinate IDs for ada in /etc/subgid, which rootless podman needs"
    assert engine_facts.podman_trouble("ada", "") == failure(engine_facts.NO_IDS, told)
    refused = engine_facts.podman_trouble("ada", "unshare: Operation not permitted")
    assert refused["code"] == engine_facts.NO_NAMESPACES and "Operation not permitted" in refused["message"]
    files["/etc/nsswitch.conf"] += "subid: sss\n"
    assert engine_facts.podman_trouble("ada", "") is None, "a directory service has them"
    monkeypatch.setattr(engine_facts, "which", lambda name: None)
    told = "newuidmap, which rootless podman needs, is not installed"
    assert engine_facts.podman_trouble("ada", "") == failure(engine_facts.NO_UIDMAP, told)


# -- the whole -------------------------------------------------------------------------------------


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_this_machine(tmp_path):
    found = facts.gather(str(tmp_path / "not" / "there" / "yet"))
    assert json.loads(json.dumps(found)) == found
    assert found["facts"] == facts.FACTS
    assert found["user"]["uid"] == os.getuid()
    assert found["python"]["executable"] == sys.executable
    assert found["cpu"]["usable"] == len(os.sched_getaffinity(0))
    assert found["store"]["folder"] == str(tmp_path / "not" / "there" / "yet")
    assert 0 < found["store"]["free"] <= found["store"]["total"]
    assert 0 < found["memory"]["available"] <= found["memory"]["total"]
    assert found["os"]["system"] == "Linux" and found["os"]["libc"]
    assert not (tmp_path / "not").exists()  # looking makes nothing


def test_an_engine_that_hangs_is_left_and_the_rest_is_told(tmp_path, monkeypatch):
    child = tmp_path / "child"  # which holds the pipe when its parent was killed
    program(tmp_path / "bin", "docker", f"sleep 1000 & echo $! > {child}; wait")
    program(tmp_path / "bin", "podman", "echo no space left >&2; exit 125")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = facts.gather(str(tmp_path), patience=1.0)
    os.kill(int(child.read_text()), signal.SIGKILL)
    assert found["docker"]["error"] == "it did not respond in time"
    assert found["podman"]["error"] == "no space left"
    assert found["os"]["kernel"] and found["time"] <= time.time()


def test_a_machine_with_nothing(tmp_path, monkeypatch):
    program(tmp_path / "bin", "docker", "exit 0")
    (tmp_path / "bin" / "docker").write_bytes(b"\x7fELF nonsense")  # cannot be started
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.delenv("SHELL", raising=False)
    monkeypatch.setattr(facts, "_read", lambda path: "")
    found = facts.gather("/nonexistent/store")
    assert found["docker"] is None and found["podman"] is None
    assert found["user"]["home_writable"] is False
    assert found["boot_id"] is None and found["memory"]["total"] is None and found["store"]["network"] is None
    assert Facts.from_json(found).user.home == "/nonexistent"


@pytest.mark.parametrize(("version", "python"), oldest_and_newest((3, 8)))
def test_old_and_new_pythons_of_hosts(version, python, tmp_path):
    place = Path(facts.__file__).parents[1]
    code = "import sys, json; sys.path.insert(0, sys.argv[1])\nfrom remote.facts import gather\n"
    code += "print(json.dumps(gather(sys.argv[2])))"
    words = [python, "-I", "-S", "-c", code, str(place), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["python"]["version"].startswith(".".join(map(str, version)))


def test_a_python_that_a_project_names_is_found_and_not_started(tmp_path, monkeypatch):
    program(tmp_path / "bin", "python9", f"touch {tmp_path}/started; echo Python 9.9")
    python = tmp_path / "bin" / "python9"
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("python9", str(python)):
        found = facts.gather(str(tmp_path), python=name, named=True)["script"]
        assert found == {"executable": str(python), "version": None, "tried": False}
    assert facts.gather(str(tmp_path), python="/nowhere/python", named=True)["script"]["executable"] is None
    assert not (tmp_path / "started").exists()
    assert facts.gather(str(tmp_path), python="python9")["script"]["version"] == "9.9"


def test_facts_of_a_host_that_is_older_or_newer():
    assert Facts.from_json({}) == Facts()
    found = Facts.from_json(
        {"facts": 9, "os": {"arch": "riscv64", "new": 1}, "cpu": None, "docker": {"path": "/d"}, "x": 2}
    )
    assert found.os.arch == "riscv64" and found.os.libc is None
    assert found.docker == Engine(path="/d")


def test_what_scripts_would_meet(tmp_path):
    assert facts.script("/usr/bin/python3", 0, "Python 3.11.2\n", "") == {
        "executable": "/usr/bin/python3",
        "version": "3.11.2",
    }
    assert facts.script("/x", 1, "", "boom")["version"] is None
    assert facts.script(None, None, "", "") == {"executable": None, "version": None}
    found = facts.gather(str(tmp_path), python="no-such-python", reach="no-such-host.invalid")
    assert found["script"] == {"executable": None, "version": None}
    assert found["reach"]["host"] == "no-such-host.invalid" and found["reach"]["way"] is False
    assert found["reach"]["error"] and facts.gather(str(tmp_path))["reach"] is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        reach = facts.gather(str(tmp_path), reach=place)["reach"]
    assert (reach["host"], reach["way"]) == (place, True)
    assert facts.gather(str(tmp_path), reach=place)["reach"]["way"] is False, "nobody is there any more"
