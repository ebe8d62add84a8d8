"""Connection faults: lost, frozen, overloaded, disk full. A request gets its response or reports what failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlworkbench.errors import HostError, Unreachable
from mlworkbench.hosts import channel_slots
from mlworkbench.hosts.openssh import LoginRefused
from mlworkbench.hosts.ssh_host import SshHost
from mlworkbench.paths import UserPaths
from mlworkbench.remote.shared.layout import Root
from mlworkbench.testing.target_folder import write_snapshot
from tests.contract.test_host import RemoteFolder, make_ssh_host
from tests.supervisor.conftest import until


@pytest.fixture
def connected(machine, laptop, monkeypatch):
    """A connected host and its machine."""
    host_machine = machine()
    host = make_ssh_host(laptop, host_machine, monkeypatch)
    host.connect()
    yield host, host_machine
    host.disconnect()


def new_client(host: SshHost) -> SshHost:
    return SshHost(host.attachment, UserPaths(Path(os.environ["MLW_HOME"])))


def count_logins(machine) -> int:
    return int(machine.log.count("Accepted publickey"))


def test_thirty_parallel_clients_share_one_connection(connected):
    host, host_machine = connected
    host.disconnect()
    before = count_logins(host_machine)

    def talk(number: int) -> int:
        mine = new_client(host)
        for _ in range(3):
            news = mine.news("nosuch", {"log": 0}, 10)
            assert not news.exists
        mine.close()
        return number

    with ThreadPoolExecutor(30) as pool:
        assert sorted(pool.map(talk, range(30))) == list(range(30))
    assert count_logins(host_machine) - before == 1
    assert "no more sessions" not in host_machine.log


def test_log_followers_release_channels_for_others(connected):
    host, _ = connected
    host.close()
    over = threading.Event()
    turns = [0] * channel_slots.COUNT

    def follow(number: int) -> None:
        mine = new_client(host)
        while not over.is_set():
            mine.news("nosuch", {"log": 0}, 10, wait=1.0)
            turns[number] += 1
        mine.close()

    with ThreadPoolExecutor(channel_slots.COUNT) as pool:
        done = [pool.submit(follow, number) for number in range(channel_slots.COUNT)]
        until(lambda: all(turns))
        newcomer = new_client(host)
        assert newcomer.ask({"do": "hello"})["ok"]
        newcomer.close()
        over.set()
        for result in done:
            result.result(60)


def test_connection_slot_that_is_never_released(connected, monkeypatch):
    host, _ = connected
    held = [channel_slots.ChannelSlots(host._connection.path) for _ in range(channel_slots.COUNT)]
    host.close()
    for process in held:
        process.acquire()
    with pytest.raises(HostError, match="in use by other"):
        channel_slots.ChannelSlots(host._connection.path).acquire(timeout=0.2)
    for process in held:
        process.release()


@pytest.mark.parametrize("fault", ["sshd restart", "reset", "agent killed", "master killed", "master stopped"])
def test_next_request_opens_new_connection(connected, fault):
    host, host_machine = connected
    if fault == "sshd restart":
        host_machine.stop_sshd(sessions=True)
        host_machine.start_sshd()
    elif fault == "reset":
        host_machine.reset_connections()
    elif fault == "agent killed":
        for pid, line in host_machine.processes().items():
            if "agent.py" in line:
                host_machine.run("kill", "-9", str(pid))
    else:
        os.kill(_master_pid(host), signal.SIGKILL if fault == "master killed" else signal.SIGSTOP)
        if fault == "master stopped":
            host = new_client(host)
    assert host.ask({"do": "hello"})["ok"]
    assert host.ask({"do": "hello"})["ok"]
    host.disconnect()


def _master_pid(host: SshHost) -> int:
    mark = str(host._connection.socket).encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(b"ssh: " + mark):
                return int(entry.name)
            arguments = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if mark in arguments and b"-M" in arguments:
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError("no master")


def test_new_command_replaces_frozen_connection(connected):
    """The connection is open, but the server is frozen: a new command does not wait for the keepalive."""
    host, host_machine = connected
    host.close()
    host_machine.freeze()
    before = count_logins(host_machine)
    host.connect()
    assert count_logins(host_machine) == before + 1
    assert host.ask({"do": "hello"})["ok"]
    host_machine.thaw()


def test_request_on_frozen_connection_is_retried_on_new_connection(connected):
    host, host_machine = connected
    host_machine.freeze()
    assert host.news("nosuch", {}, 1).exists is False
    host_machine.thaw()


def test_short_outage_keeps_connection(connected):
    host, host_machine = connected
    place = RemoteFolder(host_machine)
    folder = place.add_run("r", "")
    (folder / "log").write_bytes(b"0123456789")
    place.hand_over()
    assert host.news("r", {"log": 0}, 5).parts["log"] == b"01234"
    before = count_logins(host_machine)
    host_machine.cut()
    healing = threading.Timer(3, host_machine.heal)
    healing.start()
    assert host.news("r", {"log": 5}, 5).parts["log"] == b"56789"
    healing.join()
    assert count_logins(host_machine) == before


def test_long_outage_is_reported_and_recovered(connected):
    host, host_machine = connected
    host_machine.cut()
    with pytest.raises(Unreachable):
        host.news("nosuch", {}, 1)
    host_machine.heal()
    assert host.news("nosuch", {}, 1).exists is False


def test_lost_response_does_not_start_run_twice(connected, monkeypatch):
    host, host_machine = connected
    place = RemoteFolder(host_machine)
    folder = place.add_run("r", "open('starts', 'a').write('x'); import time; time.sleep(1000)")
    real, lost = host._channel.ask, []

    def losing(request, body, patience):
        answer = real(request, body, patience)
        if request["do"] == "start" and not lost:
            lost.append(answer)
            host._channel.close()
            from mlworkbench.remote.shared.message_frames import ConnectionClosed

            raise ConnectionClosed("cut between request and answer")
        return answer

    monkeypatch.setattr(host._channel, "ask", losing)
    assert host.call("start", "r", ["n"], {"secrets": {}})["claimed"] is True
    assert lost[0][0]["claimed"] is True
    until(lambda: (folder / "work" / "starts").exists())
    host.call("cancel", "r", ["me", "0"], {})
    place.wait_for_end(folder)
    assert (folder / "work" / "starts").read_text() == "x"


CLIENT = """
import sys
from pathlib import Path
from mlworkbench.attachments import Attachments
from mlworkbench.hosts.openssh import LoginRefused
from mlworkbench.hosts.ssh_host import SshHost
from mlworkbench.paths import UserPaths
from mlworkbench.remote.shared.layout import Root
paths = UserPaths(Path(sys.argv[1]))
host = SshHost(Attachments(paths).list()[0], paths)
host.send_code(sys.argv[2], Root(sys.argv[3]), lambda done, total: print(done, flush=True))
"""


def test_upload_resumes_after_kill_9(connected, tmp_path, laptop):
    host, host_machine = connected
    store = Root(str(tmp_path / "code"))
    files = {f"small{number}": os.urandom(1000) for number in range(50)}
    digest = write_snapshot(store, {**files, "large": os.urandom(24 << 20)})
    host_machine.slow("80mbit")
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(laptop.store), digest, store.path],
        stdout=subprocess.PIPE,
        env={**os.environ, **laptop.env},
    )
    assert client.stdout
    for line in client.stdout:
        if int(line) > 12 << 20:
            break
    client.kill()
    client.wait()
    client.stdout.close()
    host_machine.slow(None)
    steps: list[tuple[int, int]] = []
    host.send_code(digest, store, lambda done, total: steps.append((done, total)))
    total = (24 << 20) + 50 * 1000
    assert steps[0][0] > 4 << 20
    assert steps[-1] == (steps[-1][1], steps[-1][1]) and steps[-1][1] <= total
    assert (host_machine.home / ".mlw" / "snapshots" / f"{digest}.json").is_file()
    assert host.ask({"do": "hello"})["ok"]


def test_only_changed_files_are_uploaded(connected, tmp_path, machine):
    host, host_machine = connected
    store = Root(str(tmp_path / "code"))
    files = {f"f{number}.py": os.urandom(300) for number in range(2000)}
    host.send_code(write_snapshot(store, files), store)
    proxy = host_machine.proxy()
    files["f7.py"] = b"changed"
    del files["f8.py"]
    digest = write_snapshot(store, files)
    steps: list[tuple[int, int]] = []
    sent = _sent_by(host)
    host.send_code(digest, store, lambda done, total: steps.append((done, total)))
    assert steps[-1] == (7, 7)
    assert _sent_by(host) - sent < 3000
    assert proxy.carried == 0


def _sent_by(host: SshHost) -> int:
    """Return the number of bytes that our ssh process has read. Nearly all of them are input that it sends."""
    text = Path(f"/proc/{host._channel._process.pid}/io").read_text()
    return int(text.partition("rchar: ")[2].split()[0])


def test_refused_login_is_not_retried(connected):
    host, host_machine = connected
    host.disconnect()
    keys = host_machine.home / ".ssh" / "authorized_keys"
    keys.rename(keys.with_name("gone"))
    before = host_machine.log.count("Connection closed by authenticating user")
    for _ in range(5):
        with pytest.raises(LoginRefused, match="was refused"):
            host.news("r", {}, 1)
    assert host_machine.log.count("Connection closed by authenticating user") - before == 1
    keys.with_name("gone").rename(keys)
    again = new_client(host)
    assert again.news("r", {}, 1).exists is False
    again.disconnect()


def test_logs_are_compressed_on_slow_connection(connected):
    host, host_machine = connected
    place = RemoteFolder(host_machine)
    folder = place.add_run("r", "")
    text = b"".join(b"epoch %d loss 0.1\n" % number for number in range(100_000))
    (folder / "log").write_bytes(text)
    place.hand_over()
    host_machine.slow("8mbit")
    got, counts = b"", []
    while len(got) < len(text):
        before = host._channel.pipe.read_bytes
        got += host.news("r", {"log": len(got)}, 256 * 1024).parts["log"]
        counts.append(host._channel.pipe.read_bytes - before)
    host_machine.slow(None)
    assert got == text
    assert counts[-2] < counts[0] / 3


def test_full_remote_disk_is_reported(machine, laptop, monkeypatch, tmp_path):
    host_machine = machine(disk="24M")
    host = make_ssh_host(laptop, host_machine, monkeypatch)
    store = Root(str(tmp_path / "code"))
    digest = write_snapshot(store, {"large": os.urandom(60 << 20)})
    with pytest.raises(HostError, match="No space left|is full"):
        host.send_code(digest, store)
    small = write_snapshot(store, {"small": b"x"})
    assert host.ask({"do": "hello"})["ok"]
    host.ask({"do": "free"})
    host.send_code(small, store)
    host.disconnect()


def test_idle_connection_is_closed(connected):
    host, _ = connected
    text = (host.attachment.folder / "ssh_config").read_text()
    assert "ControlPersist 10m" in text
    host.disconnect()
    quick = host.attachment.folder / "ssh_config"
    host._connection.open(None, ["ControlPersist=1"])
    assert quick.read_text() == text
    assert host._connection.is_open()
    until(lambda: not host._connection.is_open(), 20)


def test_request_waits_for_warm_up(connected):
    host, host_machine = connected
    host.disconnect()
    before = count_logins(host_machine)
    host.warm_up()
    assert host.ask({"do": "hello"})["ok"]
    assert count_logins(host_machine) == before + 1
