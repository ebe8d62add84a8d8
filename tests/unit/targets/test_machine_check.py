"""The findings of a machine check, computed from facts, with the remedies that users see."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from mlworkbench.errors import ConfigError
from mlworkbench.hosts.host_facts import Cpu, Engine, Facts, Logind, Memory, Nvidia, Python, Reach, Store, System
from mlworkbench.model import Compute, Interpreter
from mlworkbench.remote import engine_facts
from mlworkbench.report.units import size
from mlworkbench.targets.machine_check import ERROR, OK, WARNING, Finding, Link, is_fit, machine_findings
from mlworkbench.targets.package_source_check import package_findings

LOCAL = Compute(name="local", type="local")
DOCKER = Compute(name="box", type="docker")
REMOTE = Compute(name="box", type="remote")
GPU = replace(DOCKER, nvidia_docker=True)
PYTHON = Interpreter("/usr/bin/python3", (3, 11, 7), "first python3 on PATH")
GB = 10**9
HEALTHY = Facts(
    os=System(system="Linux", title="Debian GNU/Linux 12", kernel="6.1.0", arch="x86_64", libc="glibc 2.36"),
    cpu=Cpu(count=8, usable=8),
    memory=Memory(total=16 * GB, available=8 * GB),
    store=Store(
        folder="/home/ann/store", writable=True, free=50 * GB, total=100 * GB, inodes_free=10**6, filesystem="ext4"
    ),
)
ENGINE = Engine(program="docker", path="/usr/bin/docker", version="28.2", os="linux", arch="x86_64")
DENIED = replace(ENGINE, version=None, error="permission denied while trying to connect to the Docker daemon socket")


def found(facts=HEALTHY, compute=LOCAL, python=PYTHON) -> dict[str, Finding]:
    return {one.what: one for one in machine_findings(facts, compute, python, size)}


def test_a_machine_that_is_well():
    findings = machine_findings(HEALTHY, LOCAL, PYTHON, size)
    assert [(one.what, one.state, one.found, one.hint) for one in findings] == [
        ("system", OK, "Debian GNU/Linux 12, kernel 6.1.0, x86_64, glibc 2.36", None),
        ("python", OK, "3.11.7, /usr/bin/python3 (first python3 on PATH)", None),
        ("store", OK, "50.0 GB free of 100 GB in /home/ann/store (ext4)", None),
        ("processors", OK, "8", None),
        ("memory", OK, "8.0 GB free of 16.0 GB", None),
    ]
    assert is_fit(findings)


def test_a_machine_of_which_nothing_is_known():
    findings = machine_findings(Facts(), LOCAL, PYTHON, size)
    assert is_fit(findings)
    assert [one.found for one in findings if one.what in ("system", "processors", "memory")] == ["unknown"] * 3


def test_no_python_is_the_error_that_submit_would_give():
    findings = machine_findings(HEALTHY, LOCAL, ConfigError("no Python on PATH", "install Python"), size)
    assert findings[1] == Finding("python", ERROR, "no Python on PATH", "install Python")
    assert not is_fit(findings)


@pytest.mark.parametrize(
    ("store", "state", "words", "hint"),
    [
        ({"free": 2 * GB}, OK, "2.0 GB free", None),
        ({"free": GB // 2}, WARNING, "500 MB free", "mlw experiment clean"),
        ({"free": 10**6}, ERROR, "1.0 MB free", "free disk space"),
        ({"inodes_free": 500}, WARNING, "room for only 500 more files", "free disk space"),
        ({"inodes_free": 0}, ERROR, "room for only 0 more files", "free disk space"),
        ({"inodes_free": None}, OK, "50.0 GB free", None),
        ({"network": True, "filesystem": "nfs4"}, WARNING, "(nfs4)", "MLW_HOME"),
        ({"noexec": True}, WARNING, "/home/ann/store is mounted noexec", "MLW_HOME"),
        ({"writable": False}, ERROR, "/home/ann/store is not writable", "MLW_HOME"),
        ({"free": None, "total": None}, OK, "space unknown", None),
    ],
)
def test_store(store, state, words, hint):
    one = found(replace(HEALTHY, store=replace(HEALTHY.store, **store)))["store"]
    assert one.state == state and words in one.found
    assert (one.hint is None) if hint is None else hint in one.hint


def test_processors_that_are_not_all_ours():
    assert found(replace(HEALTHY, cpu=Cpu(count=8, usable=2)))["processors"].found == "2 of 8"


@pytest.mark.parametrize(
    ("memory", "state", "words"),
    [
        (Memory(16 * GB, 8 * GB, 4 * GB), OK, "limited to 4.0 GB"),
        (Memory(16 * GB, 10**8), WARNING, "100 MB free of 16.0 GB"),
    ],
)
def test_memory(memory, state, words):
    one = found(replace(HEALTHY, memory=memory))["memory"]
    assert one.state == state and words in one.found


@pytest.mark.parametrize(
    ("nvidia", "state", "words"),
    [
        (Nvidia("535.104", "/usr/bin/nvidia-smi"), OK, "NVIDIA driver 535.104, /usr/bin/nvidia-smi"),
        (Nvidia("535.104"), OK, "NVIDIA driver 535.104"),
        (Nvidia(None, "/usr/bin/nvidia-smi"), WARNING, "the driver is not loaded"),
    ],
)
def test_gpu(nvidia, state, words):
    one = found(replace(HEALTHY, nvidia=nvidia))["gpu"]
    assert one.state == state and words in one.found
    assert "gpu" not in found(HEALTHY)


@pytest.mark.parametrize(
    ("compute", "docker", "podman", "states"),
    [
        (LOCAL, None, None, {}),
        (LOCAL, ENGINE, None, {"docker": OK}),
        (LOCAL, DENIED, None, {"docker": OK}),
        (REMOTE, None, DENIED, {"podman": OK}),
        (DOCKER, None, None, {"docker": ERROR}),
        (DOCKER, ENGINE, None, {"docker": OK}),
        (DOCKER, DENIED, None, {"docker": ERROR}),
        (DOCKER, DENIED, ENGINE, {"docker": ERROR, "podman": OK}),
        (DOCKER, replace(ENGINE, os="windows"), None, {"docker": ERROR}),
        (LOCAL, replace(ENGINE, os="windows"), None, {"docker": OK}),
        (GPU, ENGINE, None, {"docker": ERROR}),
        (GPU, replace(ENGINE, nvidia=True), None, {"docker": OK}),
        (GPU, ENGINE, replace(ENGINE, nvidia=True), {"docker": ERROR, "podman": OK}),
        (DOCKER, ENGINE, DENIED, {"docker": OK, "podman": WARNING}),
        (DOCKER, None, ENGINE, {"podman": OK}),
    ],
)
def test_engines_matter_to_targets_with_a_container(compute, docker, podman, states):
    findings = found(replace(HEALTHY, docker=docker, podman=podman), compute)
    assert {name: one.state for name, one in findings.items() if name in ("docker", "podman")} == states
    assert all(one.hint for one in findings.values() if one.state != OK)


@pytest.mark.parametrize(
    ("error", "code", "remedy", "page"),
    [
        ("permission denied while trying to connect", None, "usermod -aG docker", "docker-not-permitted"),
        ("Cannot connect to the Docker daemon at unix:///x", None, "systemctl start docker", "docker-not-running"),
        ("silent", engine_facts.NO_RESPONSE, "does not respond", "docker-not-running"),
        ("closed", engine_facts.NO_NAMESPACES, "user.max_user_namespaces", "docker-not-permitted"),
        ("none", engine_facts.NO_IDS, "--add-subuids", "docker-not-permitted"),
        ("missing", engine_facts.NO_UIDMAP, "install uidmap", "docker-not-permitted"),
        ("it did not respond in time, which rootless podman needs", None, "/usr/bin/docker info", "docker-not-running"),
        ("something new", "of-a-newer-target", "/usr/bin/docker info", "docker-not-running"),
    ],
)
def test_an_engine_says_itself_what_is_wrong_and_we_say_the_remedy(error, code, remedy, page):
    broken = replace(HEALTHY, docker=replace(ENGINE, version=None, error=error, code=code))
    one = found(broken, DOCKER)["docker"]
    assert error in one.found and remedy in one.hint and one.more == page
    one = found(broken)["docker"]
    assert one.found == f"not needed by a target of type local (/usr/bin/docker cannot be used: {error})"
    assert (one.state, one.hint) == (OK, None)


def test_docker_that_is_podman_says_so():
    one = found(replace(HEALTHY, docker=replace(ENGINE, program="podman", rootless=True, nvidia=True)))["docker"]
    assert one.found == "podman 28.2, linux, x86_64, rootless, NVIDIA GPUs"


@pytest.mark.parametrize(
    ("logind", "state"),
    [
        (Logind(running=False), None),
        (Logind(running=True, kill_user_processes=False), None),
        (Logind(running=True, kill_user_processes=None), None),
        (Logind(running=True, kill_user_processes=True, linger=True), OK),
        (Logind(running=True, kill_user_processes=True, linger=False), WARNING),
    ],
)
def test_sessions_that_end_their_processes(logind, state):
    one = found(replace(HEALTHY, logind=logind)).get("sessions")
    assert (one.state if one else None) == state
    assert state != WARNING or "loginctl enable-linger" in one.hint


def test_a_system_that_is_not_tested():
    one = found(replace(HEALTHY, os=System(system="Darwin", kernel="23.1")))["system"]
    assert one.state == WARNING and one.found == "Darwin, kernel 23.1"


# -- remote machines -----------------------------------------------------------------------------------


def remote_findings(facts=HEALTHY, compute=REMOTE, skew=0.0) -> dict[str, Finding]:
    link = Link("ada@box:22", 0.0123, skew, "0123456789abcdef")
    return {one.what: one for one in machine_findings(facts, compute, None, size, link)}


def test_the_way_to_a_machine():
    assert remote_findings()["connection"].found == "ada@box:22, 12.3 ms round trip"
    assert "library 0123456789abcdef" in remote_findings()["agent"].found
    assert "connection" not in found()


@pytest.mark.parametrize(
    ("skew", "state", "words"),
    [
        (0.4, OK, "in sync"),
        (-50, OK, "50 s behind this machine's"),
        (119, OK, "119 s ahead of this machine's"),
        (-121, WARNING, "its clock is 2 minutes behind this machine's"),
        (86400 * 400, WARNING, "its clock is 400 days ahead of this machine's"),
    ],
)
def test_a_clock(skew, state, words):
    one = remote_findings(skew=skew)["clock"]
    assert (one.state, one.found) == (state, words)
    assert (state == OK) == (one.hint is None)


@pytest.mark.parametrize(
    ("script", "compute", "state", "words"),
    [
        (Python("3.9.2", "/usr/bin/python3"), REMOTE, OK, "3.9.2, /usr/bin/python3"),
        (Python(None, None), REMOTE, ERROR, "python3 not found on the PATH of the machine"),
        (Python(None, "/opt/py"), replace(REMOTE, python_location="/opt/py"), ERROR, "/opt/py does not start"),
        (
            Python(None, "/opt/py", False),
            replace(REMOTE, python_location="/opt/py"),
            OK,
            "/opt/py (runs scripts; from python",
        ),
        (Python(None, None, False), replace(REMOTE, python_location="/opt/py"), ERROR, "/opt/py not found on the PATH"),
    ],
)
def test_the_python_of_scripts(script, compute, state, words):
    one = remote_findings(replace(HEALTHY, script=script, python=Python("3.8.1", "/opt/agent")), compute)["python"]
    assert one.state == state and words in one.found
    assert (one.hint is None) == (state == OK) and (state == OK or "/opt/agent" in str(one.hint))


def test_the_python_of_an_image_is_not_looked_into():
    assert "python" not in remote_findings(
        replace(HEALTHY, script=Python(None, None)), replace(REMOTE, type="remotedocker")
    )


@pytest.mark.parametrize(
    ("reach", "state", "words"),
    [
        (Reach("host", True), OK, "host is reachable"),
        (Reach("host", False, True, "refused"), OK, "a proxy is set on the target"),
        (
            Reach("host", False, False, "[Errno -3] no name"),
            WARNING,
            "cannot reach host (no name)",
        ),
        (Reach("host", False, False, ""), WARNING, "cannot reach host"),
    ],
)
def test_the_way_out(reach, state, words):
    one = remote_findings(replace(HEALTHY, reach=reach))["network"]
    assert one.state == state and words in one.found and (state == OK) == (one.hint is None)
    assert is_fit([one]) and "network" not in remote_findings()


MANAGED = replace(REMOTE, user_managed_environment=False)
INDEX = "https://index.example/simple"


@pytest.mark.parametrize(
    ("compute", "settings", "reach", "found"),
    [
        (REMOTE, {}, None, "the machine's own packages; mlw installs none (userManagedEnvironment)"),
        (
            MANAGED,
            {"PIP_INDEX_URL": INDEX},
            Reach("x", True),
            "downloaded by the target from index.example (your settings)",
        ),
        (
            MANAGED,
            {"PIP_INDEX_URL": INDEX},
            Reach("x", False, False),
            "downloaded by this machine and sent to the target: the target cannot reach index.example (your settings)",
        ),
        (
            MANAGED,
            {"UV_DEFAULT_INDEX": "https://ada:pw@index.example/simple"},
            Reach("x", True),
            "downloaded by this machine and sent to the target: index.example (your settings) needs a password, which"
            " stays on this machine",
        ),
        (
            MANAGED,
            {"PIP_INDEX_URL": INDEX},
            Reach("x", False, True),
            "downloaded by the target from index.example (your settings), through the target's proxy",
        ),
        (
            MANAGED,
            {},
            Reach("x", True),
            "downloaded by the target from the default package index if reachable, else downloaded by this machine and"
            " sent to the target",
        ),
        (
            MANAGED,
            {"PIP_INDEX_URL": "https://index.example/${TOK}/simple", "TOK": "pw"},
            Reach("x", True),
            "downloaded by this machine and sent to the target: the address of index.example (your settings)"
            " may contain a secret and stays on this machine; builds of source packages do not use it",
        ),
        (MANAGED, {"PIP_NO_INDEX": "1"}, Reach("x", True), "sent from local folders of this machine (your settings)"),
    ],
)
def test_who_fetches_packages(compute, settings, reach, found, tmp_path):
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, **settings}
    [one] = package_findings(replace(HEALTHY, reach=reach), compute, environ)
    assert (one.what, one.state, one.found) == ("packages", OK, found)


def test_who_fetches_pythons(tmp_path):
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    for address, found in (
        (
            "https://ada:pw@mirror.example/p",
            "downloaded by this machine and sent to the target: mirror.example (UV_PYTHON_INSTALL",
        ),
        (
            "https://mirror.example/p",
            "downloaded by the target from mirror.example (UV_PYTHON_INSTALL_MIRROR) if reachable",
        ),
        ("file:///srv/pythons", "sent from this machine's file:///srv/pythons (UV_PYTHON_INSTALL_MIRROR)"),
    ):
        _, pythons = package_findings(HEALTHY, MANAGED, {**environ, "UV_PYTHON_INSTALL_MIRROR": address})
        assert pythons.what == "pythons" and found in pythons.found and "pw" not in pythons.found
