"""Check that the machines for other tests behave as described."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.machines.network import read, wait_until
from tests.machines.sandbox import BASE, Sandbox


def test_login_with_key(laptop, machine):
    host = machine()
    laptop.trust_host_keys(host)
    command = laptop.ssh(
        host, "id -un; hostname; echo ~; python3 -c 'print(6*7)'; cat /proc/sys/kernel/random/boot_id"
    ).out
    assert command.split() == [host.user, host.name, str(host.home), "42", host.boot_id]
    assert host.run("id", "-un", user=host.user).stdout.strip() == host.user
    assert laptop.ssh(host, f"ls {Path(__file__).parents[2]}; command -v docker", check=False).out == ""
    refused = laptop.ssh_with_password(host, "anything", "true", check=False)
    assert "Permission denied (publickey)" in refused.err


def test_login_with_password(laptop, machine):
    host = machine(password="open sesame", pubkeys=False)
    laptop.trust_host_keys(host)
    assert laptop.ssh_with_password(host, "open sesame", "id -un").out.strip() == host.user
    assert "Permission denied" in laptop.ssh_with_password(host, "wrong", "id -un", check=False).err
    assert "Permission denied (password)" in laptop.ssh(host, "true", check=False).err


def test_computer_is_not_changed(machine):
    files = [Path("/etc/passwd"), Path("/etc/group"), Path("/etc/hostname")]
    before = [path.read_text() for path in files]
    host = machine(password="pw")
    host.run("sh", "-c", "echo x >>/etc/passwd; rm -rf /usr/games /usr/bin/env; touch /made /tmp/made")
    assert [path.read_text() for path in files] == before
    assert Path("/usr/bin/env").exists() and not Path("/made").exists() and not Path("/tmp/made").exists()


def test_docker_as_the_user(laptop, machine, engine):
    host = machine(docker="yes")
    laptop.trust_host_keys(host)
    as_user = f"--rm --network none --user {host.uid}:{host.uid}"
    laptop.ssh(host, f"docker run {as_user} -v ~:{host.home} {engine.image} touch {host.home}/made")
    assert os.stat(host.home / "made").st_uid == host.uid
    assert engine.containers() == []
    laptop.use_engine(engine)
    engine.kill()
    assert "Cannot connect" in laptop.ssh(host, "docker ps", check=False).err
    engine.start()
    assert laptop.ssh(host, "docker ps -q").out == ""


def test_docker_denied(laptop, machine):
    host = machine(docker="denied")
    laptop.trust_host_keys(host)
    assert "permission denied" in laptop.ssh(host, "docker ps", check=False).err


def test_containers_survive_killed_engine(engine):
    engine.stop()
    engine.start(live_restore=True)
    engine.docker("run", "-d", "--name", "long", "--network", "none", engine.image, "sleep", "600")
    pid = engine.inspect("long")["State"]["Pid"]
    engine.kill()
    assert os.path.exists(f"/proc/{pid}")
    engine.start(live_restore=True)
    assert engine.inspect("long")["State"]["Pid"] == pid
    assert engine.containers() == ["long"]


def test_engine_is_empty_for_next_test(engine):
    assert engine.containers() == []


def test_engine_with_gpus(engine):
    arguments = ("run", "--rm", "--network", "none", "--gpus", '"device=GPU-1,GPU-2"', engine.image)
    without = engine.docker(*arguments, "true", check=False)
    assert without.returncode == 125 and "could not select device driver" in without.stderr
    engine.stop()
    engine.start(gpus=True)
    assert engine.docker(*arguments, "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").stdout.strip() == "GPU-1,GPU-2"


def test_machine_with_own_engine(laptop, machine):
    host = machine(docker="own")
    host.load_image()
    laptop.trust_host_keys(host)
    laptop.ssh(host, "docker run -d --name long --network none mlw-debian:1 sleep 600")
    pid = int(laptop.ssh(host, "docker inspect -f '{{.State.Pid}}' long").out)
    assert host.processes(user=None)[pid] == "sleep 600"
    host.reboot()
    assert laptop.ssh(host, "docker inspect -f '{{.State.Status}}' long").out.strip() == "exited"


def test_registry_with_password(laptop, machine, registry):
    host = machine(docker="yes")
    laptop.trust_host_keys(host)
    assert "no basic auth credentials" in laptop.ssh(host, f"docker pull {registry.image}", check=False).err
    login = f"echo '{registry.password}' | docker login -u {registry.user} --password-stdin {registry.address}"
    assert "Login Succeeded" in laptop.ssh(host, login).out
    laptop.ssh(host, f"docker pull {registry.image}")
    laptop.ssh(host, f"docker run --rm --network none {registry.image} true")


def test_podman_as_root_and_rootless(laptop, machine, podman):
    assert podman.podman("run", "--rm", "--network", "none", podman.image, "id", "-u").stdout.strip() == "0"
    host = machine(docker="podman")
    host.load_image()
    laptop.trust_host_keys(host)
    command = f"podman run --rm --network none --userns=keep-id -v ~:{host.home} mlw-debian:1 touch {host.home}/made"
    laptop.ssh(host, command)
    assert os.stat(host.home / "made").st_uid == host.uid


def test_network_outage(laptop, machine):
    host = machine()
    laptop.trust_host_keys(host)
    host.cut()
    with socket.socket() as connection:
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.connect((host.address, host.port))
    host.heal()
    laptop.ssh(host, "true")


def test_connection_reset(machine):
    host = machine()
    with socket.create_connection((host.address, host.port), 10) as connection:
        connection.recv(100)
        host.reset_connections()
        with pytest.raises(ConnectionResetError):
            connection.recv(100)


def test_bandwidth_limit(laptop, machine):
    host = machine()
    laptop.trust_host_keys(host)
    host.slow("4mbit")
    before = time.monotonic()
    assert len(laptop.ssh(host, "head -c 500000 /dev/zero").stdout) == 500000
    assert time.monotonic() - before > 0.5  # 0.2 s without the limit; a busy machine only takes longer
    host.slow(None)


def test_proxy_latency_cut_and_greeting(machine):
    host = machine()
    proxy = host.proxy(latency_ms=100)
    before = time.monotonic()
    with socket.create_connection((proxy.address, proxy.port), 10) as connection:
        assert connection.recv(100).startswith(b"SSH-2.0")
        assert time.monotonic() - before > 0.09
        proxy.cut()
        assert _ended(connection)
    proxy.greeting = b"HTTP/1.1 400\r\n"
    with socket.create_connection((proxy.address, proxy.port), 10) as connection:
        assert connection.recv(100).startswith(b"HTTP")


def test_stopped_sshd_and_frozen_session(machine, laptop):
    host = machine()
    laptop.trust_host_keys(host)
    host.stop_sshd()
    assert "Connection refused" in laptop.ssh(host, "true", check=False).err
    host.start_sshd()
    with socket.create_connection((host.address, host.port), 10) as connection:
        connection.recv(100)
        host.freeze()
        connection.sendall(b"nonsense\r\n")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        host.thaw()
        connection.settimeout(10)
        assert connection.recv(100).startswith(b"Invalid SSH identification")


def test_reboot(laptop, machine):
    host = machine()
    laptop.trust_host_keys(host)
    (host.home / "kept").write_text("x")
    laptop.ssh(host, "nohup sleep 600 </dev/null >/dev/null 2>&1 &")
    wait_until(lambda: list(host.processes().values()) == ["sleep 600"], "sleep")
    old = host.boot_id
    host.reboot()
    assert laptop.ssh(host, "cat /proc/sys/kernel/random/boot_id kept").out.split() == [host.boot_id, "x"]
    assert host.boot_id != old and host.processes() == {}


def test_changed_host_key(laptop, machine):
    host = machine()
    laptop.trust_host_keys(host)
    old = host.host_key_fingerprint
    host.change_host_key()
    assert host.host_key_fingerprint != old
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in laptop.ssh(host, "true", check=False).err


def test_jump_host_machine(laptop, machine):
    jump = machine()
    far = machine(jump=jump)
    laptop.trust_host_keys(jump, far)
    with socket.socket() as connection:
        connection.settimeout(0.3)
        with pytest.raises(OSError):  # noqa: PT011 (no route, or no answer: both are right)
            connection.connect((far.address, far.port))
    common = f"-i {jump.key} -o BatchMode=yes -o UserKnownHostsFile={laptop.ssh_folder}/known_hosts"
    leg = f"ProxyCommand=ssh -F none {common} -W %h:%p {jump.user}@{jump.address}"
    assert laptop.ssh(far, "hostname", options=("-o", leg)).out.strip() == far.name
    jump.reboot()
    assert laptop.ssh(far, "hostname", options=("-o", leg)).out.strip() == far.name


@pytest.mark.parametrize("shell", ["/usr/bin/fish", "/usr/bin/tcsh", "/usr/bin/zsh", "/bin/dash"])
def test_login_shells(laptop, machine, shell):
    host = machine(shell=shell, rc="" if shell == "/bin/dash" else "echo noise")
    laptop.trust_host_keys(host)
    assert laptop.ssh(host, "echo $0" if shell != "/usr/bin/fish" else "echo $FISH_VERSION").out.strip()
    assert ("noise" in laptop.ssh(host, "true").out) == (shell != "/bin/dash")


def test_shells_that_refuse_login(laptop, machine):
    host = machine(shell="/usr/sbin/nologin")
    forced = machine(sshd="ForceCommand echo only this")
    laptop.trust_host_keys(host, forced)
    assert "This account is currently not available" in laptop.ssh(host, "true", check=False).out
    assert laptop.ssh(forced, "id").out == "only this\n"


def test_python_options(laptop, machine):
    none = machine(python="no")
    other = machine(python="/usr/bin/env")
    laptop.trust_host_keys(none, other)
    assert laptop.ssh(none, "python3 -c 1", check=False).code == 127
    assert "PATH=" in laptop.ssh(other, "python3").out


def test_small_disk(laptop, machine):
    host = machine(disk="20M")
    laptop.trust_host_keys(host)
    assert "No space left" in laptop.ssh(host, "head -c 30000000 /dev/zero >big", check=False).err


KILLED = """
import time
from tests.machines.machine import Machine, MachineOptions
from tests.machines.network import Switch
from tests.machines.sandbox import Sandbox

place = Sandbox()
host = Machine(Switch(place), None, MachineOptions(disk="20M"))
print(place.number, host.pid, flush=True)
time.sleep(600)
"""


def test_next_session_cleans_up_killed_session(machine):
    machine()  # skips the test, or fails on CI, if machines are not available
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        number, pid = other.stdout.readline().split()
        other.kill()
    first = Path(f"/proc/{int(pid)}/cmdline")  # a zombie process has an empty command line
    assert read(first)
    Sandbox().close()
    assert not read(first)
    assert not (BASE / number.decode()).exists() and not Path(f"/sys/class/net/mlw{int(number)}").exists()


def test_laptop_with_keyring(laptop):
    kept = laptop.enable_keyring()
    code = "import keyring; keyring.set_password('a', 'b', 'c'); print(keyring.get_password('a', 'b'))"
    done = subprocess.run([sys.executable, "-c", code], env=laptop.env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "c" and kept.exists()


def test_laptop_terminal(laptop):
    child = laptop.spawn("--help")
    child.expect("Usage")
    child.wait()


def _ended(connection: socket.socket) -> bool:
    try:
        wait_until(lambda: connection.recv(100) == b"", "the end")
    except ConnectionResetError:
        pass
    return True
