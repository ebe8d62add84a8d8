"""The machines that other tests use are what they say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.machines.network import read, wait_until
from tests.machines.place import BASE, Place


def test_a_login_by_key(laptop, machine):
    host = machine()
    laptop.knows(host)
    words = laptop.ssh(
        host, "id -un; hostname; echo ~; python3 -c 'print(6*7)'; cat /proc/sys/kernel/random/boot_id"
    ).out
    assert words.split() == [host.user, host.name, str(host.home), "42", host.boot_id]
    assert host.run("id", "-un", user=host.user).stdout.strip() == host.user
    assert laptop.ssh(host, f"ls {Path(__file__).parents[2]}; command -v docker", check=False).out == ""
    refused = laptop.ssh_by_password(host, "anything", "true", check=False)
    assert "Permission denied (publickey)" in refused.err


def test_a_login_by_password(laptop, machine):
    host = machine(password="open sesame", pubkeys=False)
    laptop.knows(host)
    assert laptop.ssh_by_password(host, "open sesame", "id -un").out.strip() == host.user
    assert "Permission denied" in laptop.ssh_by_password(host, "wrong", "id -un", check=False).err
    assert "Permission denied (password)" in laptop.ssh(host, "true", check=False).err


def test_this_computer_is_not_changed(machine):
    files = [Path("/etc/passwd"), Path("/etc/group"), Path("/etc/hostname")]
    before = [path.read_text() for path in files]
    host = machine(password="pw")
    host.run("sh", "-c", "echo x >>/etc/passwd; rm -rf /usr/games /usr/bin/env; touch /made /tmp/made")
    assert [path.read_text() for path in files] == before
    assert Path("/usr/bin/env").exists() and not Path("/made").exists() and not Path("/tmp/made").exists()


def test_docker_as_the_user(laptop, machine, engine):
    host = machine(docker="yes")
    laptop.knows(host)
    as_user = f"--rm --network none --user {host.uid}:{host.uid}"
    laptop.ssh(host, f"docker run {as_user} -v ~:{host.home} {engine.image} touch {host.home}/made")
    assert os.stat(host.home / "made").st_uid == host.uid
    assert engine.containers() == []
    laptop.uses(engine)
    engine.kill()
    assert "Cannot connect" in laptop.ssh(host, "docker ps", check=False).err
    engine.start()
    assert laptop.ssh(host, "docker ps -q").out == ""


def test_docker_denied(laptop, machine):
    host = machine(docker="denied")
    laptop.knows(host)
    assert "permission denied" in laptop.ssh(host, "docker ps", check=False).err


def test_containers_outlive_a_killed_engine(engine):
    engine.stop()
    engine.start(live_restore=True)
    engine.docker("run", "-d", "--name", "long", "--network", "none", engine.image, "sleep", "600")
    pid = engine.inspect("long")["State"]["Pid"]
    engine.kill()
    assert os.path.exists(f"/proc/{pid}")
    engine.start(live_restore=True)
    assert engine.inspect("long")["State"]["Pid"] == pid
    assert engine.containers() == ["long"]


def test_the_next_test_finds_an_empty_engine(engine):
    assert engine.containers() == []


def test_an_engine_with_gpus(engine):
    words = ("run", "--rm", "--network", "none", "--gpus", '"device=GPU-1,GPU-2"', engine.image)
    without = engine.docker(*words, "true", check=False)
    assert without.returncode == 125 and "could not select device driver" in without.stderr
    engine.stop()
    engine.start(gpus=True)
    assert engine.docker(*words, "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").stdout.strip() == "GPU-1,GPU-2"


def test_an_engine_of_the_machines_own(laptop, machine):
    host = machine(docker="own")
    host.load_image()
    laptop.knows(host)
    laptop.ssh(host, "docker run -d --name long --network none mlw-debian:1 sleep 600")
    pid = int(laptop.ssh(host, "docker inspect -f '{{.State.Pid}}' long").out)
    assert host.processes(user=None)[pid] == "sleep 600"
    host.reboot()
    assert laptop.ssh(host, "docker inspect -f '{{.State.Status}}' long").out.strip() == "exited"


def test_a_registry_with_a_password(laptop, machine, registry):
    host = machine(docker="yes")
    laptop.knows(host)
    assert "no basic auth credentials" in laptop.ssh(host, f"docker pull {registry.image}", check=False).err
    login = f"echo '{registry.password}' | docker login -u {registry.user} --password-stdin {registry.address}"
    assert "Login Succeeded" in laptop.ssh(host, login).out
    laptop.ssh(host, f"docker pull {registry.image}")
    laptop.ssh(host, f"docker run --rm --network none {registry.image} true")


def test_podman_as_root_and_rootless(laptop, machine, podman):
    assert podman.podman("run", "--rm", "--network", "none", podman.image, "id", "-u").stdout.strip() == "0"
    host = machine(docker="podman")
    host.load_image()
    laptop.knows(host)
    words = f"podman run --rm --network none --userns=keep-id -v ~:{host.home} mlw-debian:1 touch {host.home}/made"
    laptop.ssh(host, words)
    assert os.stat(host.home / "made").st_uid == host.uid


def test_cut_and_heal(laptop, machine):
    host = machine()
    laptop.knows(host)
    host.cut()
    with socket.socket() as there:
        there.settimeout(0.3)
        with pytest.raises(TimeoutError):
            there.connect((host.address, host.port))
    host.heal()
    laptop.ssh(host, "true")


def test_a_reset(machine):
    host = machine()
    with socket.create_connection((host.address, host.port), 10) as there:
        there.recv(100)
        host.reset_connections()
        with pytest.raises(ConnectionResetError):
            there.recv(100)


def test_a_slow_wire(laptop, machine):
    host = machine()
    laptop.knows(host)
    host.slow("4mbit")
    before = time.monotonic()
    assert len(laptop.ssh(host, "head -c 500000 /dev/zero").stdout) == 500000
    assert time.monotonic() - before > 0.5  # Without the limit: 0.2 s. A busy computer only makes it longer.
    host.slow(None)


def test_a_proxy(machine):
    host = machine()
    door = host.proxy(latency_ms=100)
    before = time.monotonic()
    with socket.create_connection((door.address, door.port), 10) as there:
        assert there.recv(100).startswith(b"SSH-2.0")
        assert time.monotonic() - before > 0.09
        door.cut()
        assert _ended(there)
    door.greeting = b"HTTP/1.1 400\r\n"
    with socket.create_connection((door.address, door.port), 10) as there:
        assert there.recv(100).startswith(b"HTTP")


def test_a_frozen_session(machine, laptop):
    host = machine()
    laptop.knows(host)
    host.stop_sshd()
    assert "Connection refused" in laptop.ssh(host, "true", check=False).err
    host.start_sshd()
    with socket.create_connection((host.address, host.port), 10) as there:
        there.recv(100)
        host.freeze()
        there.sendall(b"nonsense\r\n")
        there.settimeout(0.3)
        with pytest.raises(TimeoutError):
            there.recv(100)
        host.thaw()
        there.settimeout(10)
        assert there.recv(100).startswith(b"Invalid SSH identification")


def test_a_reboot(laptop, machine):
    host = machine()
    laptop.knows(host)
    (host.home / "kept").write_text("x")
    laptop.ssh(host, "nohup sleep 600 </dev/null >/dev/null 2>&1 &")
    wait_until(lambda: list(host.processes().values()) == ["sleep 600"], "sleep")
    old = host.boot_id
    host.reboot()
    assert laptop.ssh(host, "cat /proc/sys/kernel/random/boot_id kept").out.split() == [host.boot_id, "x"]
    assert host.boot_id != old and host.processes() == {}


def test_a_changed_host_key(laptop, machine):
    host = machine()
    laptop.knows(host)
    old = host.host_key_fingerprint
    host.change_host_key()
    assert host.host_key_fingerprint != old
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in laptop.ssh(host, "true", check=False).err


def test_a_jump_host(laptop, machine):
    jump = machine()
    far = machine(jump=jump)
    laptop.knows(jump, far)
    with socket.socket() as there:
        there.settimeout(0.3)
        with pytest.raises(OSError):  # noqa: PT011 (no route, or no answer: both are right)
            there.connect((far.address, far.port))
    common = f"-i {jump.key} -o BatchMode=yes -o UserKnownHostsFile={laptop.ssh_folder}/known_hosts"
    leg = f"ProxyCommand=ssh -F none {common} -W %h:%p {jump.user}@{jump.address}"
    assert laptop.ssh(far, "hostname", options=("-o", leg)).out.strip() == far.name
    jump.reboot()
    assert laptop.ssh(far, "hostname", options=("-o", leg)).out.strip() == far.name


@pytest.mark.parametrize("shell", ["/usr/bin/fish", "/usr/bin/tcsh", "/usr/bin/zsh", "/bin/dash"])
def test_login_shells(laptop, machine, shell):
    host = machine(shell=shell, rc="" if shell == "/bin/dash" else "echo noise")
    laptop.knows(host)
    assert laptop.ssh(host, "echo $0" if shell != "/usr/bin/fish" else "echo $FISH_VERSION").out.strip()
    assert ("noise" in laptop.ssh(host, "true").out) == (shell != "/bin/dash")


def test_shells_that_refuse(laptop, machine):
    host = machine(shell="/usr/sbin/nologin")
    forced = machine(sshd="ForceCommand echo only this")
    laptop.knows(host, forced)
    assert "This account is currently not available" in laptop.ssh(host, "true", check=False).out
    assert laptop.ssh(forced, "id").out == "only this\n"


def test_pythons(laptop, machine):
    none = machine(python="no")
    other = machine(python="/usr/bin/env")
    laptop.knows(none, other)
    assert laptop.ssh(none, "python3 -c 1", check=False).code == 127
    assert "PATH=" in laptop.ssh(other, "python3").out


def test_a_small_disk(laptop, machine):
    host = machine(disk="20M")
    laptop.knows(host)
    assert "No space left" in laptop.ssh(host, "head -c 30000000 /dev/zero >big", check=False).err


KILLED = """
import time
from tests.machines.machine import Machine, Wanted
from tests.machines.network import Switch
from tests.machines.place import Place

place = Place()
host = Machine(Switch(place), None, Wanted(disk="20M"))
print(place.number, host.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_session_is_swept_by_the_next(machine):
    machine()  # Skips or fails where there can be no machines.
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        number, pid = other.stdout.readline().split()
        other.kill()
    first = Path(f"/proc/{int(pid)}/cmdline")  # Empty for one that has ended and that nobody has asked about.
    assert read(first)
    Place().close()
    assert not read(first)
    assert not (BASE / number.decode()).exists() and not Path(f"/sys/class/net/mlw{int(number)}").exists()


def test_a_laptop_with_a_keyring(laptop):
    kept = laptop.has_keyring()
    words = "import keyring; keyring.set_password('a', 'b', 'c'); print(keyring.get_password('a', 'b'))"
    done = subprocess.run([sys.executable, "-c", words], env=laptop.env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "c" and kept.exists()


def test_a_terminal(laptop):
    child = laptop.spawn("--help")
    child.expect("Usage")
    child.wait()


def _ended(there: socket.socket) -> bool:
    try:
        wait_until(lambda: there.recv(100) == b"", "the end")
    except ConnectionResetError:
        pass
    return True
