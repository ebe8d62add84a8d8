"""The connection to real sshd hosts: ways in, odd shells, and what is told when something is missing."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attachments import Attachment, Attachments
from mlworkbench.errors import HostError, Unreachable, UsageError
from mlworkbench.hosts import channel, contact
from mlworkbench.hosts.openssh import HostKeyChanged, HostKeyUnknown, LoginRefused
from mlworkbench.hosts.ssh import SshHost
from mlworkbench.paths import UserPaths
from tests.contract.test_host import DistantPlace, become, by_ssh
from tests.e2e.plugins import EXAMPLES, write_job_script
from tests.supervisor.conftest import until

CANARY = "canary-Pa55word"


def draft_of(paths: UserPaths, machine: Any, **more: Any) -> Attachment:
    found = contact.resolve(machine.address, machine.user)
    return Attachments(paths).draft(
        found.identity, address=machine.address, username=found.username, port=found.port, **more
    )


@contextmanager
def watched(secret: str) -> Iterator[list[str]]:
    """Looks at the command lines and environments of all other processes while the block runs."""
    found: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for pid in [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
                for file in ("cmdline", "environ"):
                    try:
                        if secret.encode() in Path(f"/proc/{pid}/{file}").read_bytes():
                            found.append(f"{file} of {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
                    except OSError:
                        continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def files_with(secret: str, *folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes()
    ]


def test_a_password_is_used_once_to_install_a_key(machine, laptop, monkeypatch, tmp_path):
    paths, host_machine = become(laptop, monkeypatch), machine(password=CANARY)
    draft = draft_of(paths, host_machine)
    seen = contact.first_contact(draft)
    assert (seen.trusted, seen.fingerprint) == (False, host_machine.host_key_fingerprint)
    assert seen.methods == ("publickey", "password")
    assert contact.key_fits(seen, host_machine.host_key_fingerprint) and contact.key_fits(seen, host_machine.host_key)
    assert not contact.key_fits(seen, "SHA256:" + "A" * 43)
    assert not contact.try_keys(draft)
    with pytest.raises(LoginRefused, match="accepts publickey, password"):
        contact.login_with_password(draft, "wrong")
    assert host_machine.log.count("Failed password") == 1
    with watched(CANARY) as found:
        contact.login_with_password(draft, CANARY)
        host = SshHost(draft, paths)
        made, line = contact.make_key(draft, "mlworkbench-test")
        assert host.ask({"do": "key", "action": "add", "line": line}) == {"ok": True, "changed": True}
        assert contact.key_works(made)
        host.disconnect()
    assert found == []
    saved = Attachments(paths).save(made)
    assert Attachments(paths).find(host_machine.address, host_machine.user) == saved
    again = SshHost(saved, paths)
    assert again.ask({"do": "hello"})["ok"]
    assert again.ask({"do": "key", "action": "remove", "line": line})["changed"]
    again.disconnect()
    assert not contact.key_works(saved)
    assert files_with(CANARY, tmp_path, laptop.runtime, host_machine.home) == []
    assert [path.name for path in laptop.ssh_folder.iterdir()] == []
    modes = {path.name: path.stat().st_mode & 0o777 for path in [saved.folder, *saved.folder.iterdir()]}
    assert {name: mode for name, mode in modes.items() if mode & 0o077 and name not in ("key.pub", "sent")} == {}


def test_a_server_that_takes_keys_only(machine, laptop, monkeypatch):
    paths, host_machine = become(laptop, monkeypatch), machine()
    draft = draft_of(paths, host_machine)
    assert contact.first_contact(draft).methods == ("publickey",)
    assert not contact.try_keys(draft)
    with pytest.raises(LoginRefused, match="accepts publickey") as refused:
        contact.login_with_password(draft, CANARY)
    assert "accepts only keys" in str(refused.value.hint)
    draft = contact.use_key_file(draft, host_machine.key)
    assert contact.try_keys(draft)
    host = SshHost(draft, paths)
    assert host.ask({"do": "hello"})["uid"] == host_machine.uid
    host.disconnect()


def test_a_key_with_a_passphrase(machine, laptop, monkeypatch):
    import subprocess

    paths, host_machine = become(laptop, monkeypatch), machine()
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", CANARY, "-f", str(host_machine.key)], check=True)
    draft = contact.use_key_file(draft_of(paths, host_machine), host_machine.key)
    contact.first_contact(draft)
    assert not contact.try_keys(draft)
    asked: list[str] = []

    def answer(question: str) -> str | None:
        asked.append(question)
        return CANARY if len(asked) == 1 else None

    with watched(CANARY) as found:
        assert contact.try_keys(draft, answer)
    assert found == []
    assert "passphrase" in asked[0] and len(asked) == 1
    SshHost(draft, paths).disconnect()


def test_an_alias_of_the_users_configuration(machine, laptop, monkeypatch):
    paths, host_machine = become(laptop, monkeypatch), machine()
    laptop.knows(host_machine)
    laptop.ssh_config(
        f"Host box\n HostName {host_machine.address}\n User {host_machine.user}\n IdentityFile {host_machine.key}\n"
        " RequestTTY force\n RemoteCommand echo hijacked\n LocalForward 1234 localhost:1234\n ForwardAgent yes\n"
    )
    found = contact.resolve("box")
    assert (found.host, found.username, found.port) == (host_machine.address, host_machine.user, 22)
    draft = Attachments(paths).draft(found.identity, address="box", username=found.username, port=found.port)
    assert contact.first_contact(draft).trusted
    assert contact.try_keys(draft)
    host = SshHost(draft, paths)
    assert host.ask({"do": "hello"})["ok"]
    host.disconnect()


def test_behind_a_jump_host(machine, laptop, monkeypatch):
    become(laptop, monkeypatch)
    gate = machine(user="gate")
    inner = machine(jump=gate)
    laptop.knows(gate)
    laptop.ssh_config(f"Host {gate.address}\n IdentityFile {gate.key}\n IdentitiesOnly yes\n")
    host = by_ssh(laptop, inner, monkeypatch, jump=f"gate@{gate.address}:22")
    assert host.ask({"do": "hello"})["uid"] == inner.uid
    host.disconnect()
    with pytest.raises(Unreachable):
        by_ssh(laptop, inner, monkeypatch, jump=None, address="10.255.255.1").connect()


def test_a_password_is_not_given_to_the_jump_host(machine, laptop, monkeypatch):
    paths = become(laptop, monkeypatch)
    gate = machine(user="gate", password="another")
    inner = machine(jump=gate, password=CANARY)
    laptop.knows(gate)
    draft = draft_of(paths, inner, jump=f"gate@{gate.address}")
    draft.known_hosts.write_text(inner.host_key)
    asked: list[str] = []
    with pytest.raises(HostError):
        contact.login_with_password(draft, CANARY, lambda question: asked.append(question))
    assert len(asked) == 1 and "gate@" in asked[0]
    contact.login_with_password(draft, CANARY, lambda question: "another" if "gate@" in question else None)
    host = SshHost(draft, paths)
    assert host.ask({"do": "hello"})["uid"] == inner.uid
    host.disconnect()


def test_a_changed_host_key_stops_everything(machine, laptop, monkeypatch):
    host_machine = machine(password=CANARY, sshd="LogLevel DEBUG2")
    host = by_ssh(laptop, host_machine, monkeypatch)
    host.connect()
    host.disconnect()
    host_machine.change_host_key()
    before = host_machine.log
    with pytest.raises(HostKeyChanged, match="nothing was sent") as changed:
        SshHost(host.attachment, UserPaths(laptop.store)).connect()
    assert changed.value.fingerprint == host_machine.host_key_fingerprint
    with pytest.raises(HostKeyChanged):
        contact.login_with_password(replace(host.attachment, key="own"), CANARY)
    after = host_machine.log[len(before) :]
    assert "Connection from" in after and "userauth-request" not in after and "Failed" not in after


def test_the_users_own_known_hosts_say_otherwise(machine, laptop, monkeypatch):
    paths, host_machine = become(laptop, monkeypatch), machine()
    laptop.knows(host_machine)
    host_machine.change_host_key()
    with pytest.raises(HostKeyChanged):
        contact.first_contact(draft_of(paths, host_machine))


def test_a_key_that_was_never_accepted(machine, laptop, monkeypatch):
    paths, host_machine = become(laptop, monkeypatch), machine()
    draft = contact.use_key_file(draft_of(paths, host_machine), host_machine.key)
    with pytest.raises(HostKeyUnknown):
        SshHost(draft, paths).connect()


SH = 'echo "Welcome to $HOSTNAME"; echo noise >&2; printf "no end of line"'
NOISE = {
    "/bin/bash": SH,
    "/bin/dash": "",
    "/usr/bin/zsh": SH,
    "/usr/bin/fish": "echo hi; echo x >&2",
    "/usr/bin/tcsh": "echo hi",
}


@pytest.mark.parametrize("shell", NOISE)
def test_login_shells(machine, laptop, monkeypatch, shell):
    if not os.path.exists(shell):
        pytest.skip(f"{shell} is not installed")
    host_machine = machine(shell=shell, rc=NOISE[shell])
    host = by_ssh(laptop, host_machine, monkeypatch)
    host.connect()  # brings the library
    host.close()
    host.connect()  # finds it there
    assert host.ask({"do": "hello"})["ok"]
    (host_machine.home / ".mlw" / "lib").rename(host_machine.home / ".mlw" / "gone")
    host.close()
    host.connect()  # remembered, and not there any more
    assert host.ask({"do": "hello"})["ok"]
    host.disconnect()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"shell": "/usr/sbin/nologin"}, "not available"),
        ({"python": "no"}, "no Python 3.8"),
        ({"sshd": "ForceCommand echo only backups here"}, "only backups here"),
        ({"rc": "exit 3"}, "runs no commands: .* exit code 3; .* ~/.bashrc"),
        ({"rc": "exec dash"}, "it does not respond; .* ~/.bashrc"),
    ],
)
def test_accounts_that_cannot_be_used(machine, laptop, monkeypatch, wanted, words):
    monkeypatch.setattr(channel, "STARTING", 2.0)
    host = by_ssh(laptop, machine(**wanted), monkeypatch)
    with pytest.raises(HostError, match=words) as refused:
        host.connect()
    assert refused.value.hint and ("case $- in" in refused.value.hint) == ("python" not in wanted)
    host.disconnect()


@contextmanager
def a_door(said: bytes) -> Iterator[int]:
    """Something on a port that is not sshd."""
    door = socket.create_server(("127.0.0.1", 0))
    door.settimeout(0.1)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                caller, _ = door.accept()
            except TimeoutError:
                continue
            with caller:
                caller.sendall(said)
                caller.settimeout(2)
                try:
                    while caller.recv(1000):
                        pass
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield door.getsockname()[1]
    over.set()
    thread.join()
    door.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\x1b[31mred\r\n\r\n", "is not an SSH server; it sent: HTTP/1.1 400"),
        (b"\0\1\2" * 400 + b"\r\n", "not an SSH server|before the login"),
    ],
)
def test_what_answers_is_not_ssh(laptop, monkeypatch, said, words):
    paths = become(laptop, monkeypatch)
    with a_door(said) as port:
        draft = Attachments(paths).draft(f"a@127.0.0.1:{port}", address="127.0.0.1", username="a", port=port)
        for act in (lambda: SshHost(draft, paths).connect(), lambda: contact.first_contact(draft)):
            with pytest.raises(Unreachable, match=words) as refused:
                act()
            assert "\x1b" not in refused.value.message


def test_nobody_there(laptop, monkeypatch):
    paths = become(laptop, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    draft = Attachments(paths).draft(f"a@127.0.0.1:{port}", address="127.0.0.1", username="a", port=port)
    with pytest.raises(Unreachable, match="refused the connection"):
        SshHost(draft, paths).connect()
    draft = replace(draft, address="no-such-host.invalid")
    with pytest.raises(Unreachable, match="host name .* not found"):
        SshHost(draft, paths).connect()


@pytest.mark.parametrize("address", ["-oProxyCommand=touch", "a b", "a;b", "a$b", "a'b", "", "a\nb", "host:22:", "`x`"])
def test_names_that_could_do_harm(address):
    with pytest.raises(UsageError):
        contact.resolve(address)
    with pytest.raises(UsageError):
        contact.resolve("host", username=address or "-")
    with pytest.raises(UsageError):
        contact.resolve("host", jump=address or "-")


def test_a_warm_start_takes_few_round_trips(machine, laptop, monkeypatch):
    host_machine = machine()
    door = host_machine.proxy()
    host = by_ssh(laptop, host_machine, monkeypatch, address="127.0.0.1", port=door.port)
    host.connect()
    host.close()

    def warm() -> float:
        begun = time.monotonic()
        for verb in ("start", "adopt"):  # what a submit asks, and a look after it
            host.call(verb, "nosuch", ["n"], {})
        host.close()
        return time.monotonic() - begun

    quick = min(warm() for _ in range(3))
    door.latency = 0.15
    trips = (min(warm() for _ in range(3)) - quick) / 0.3
    door.latency = 0
    host.disconnect()
    assert 2 <= trips <= 7, trips


def test_a_server_that_takes_no_keys_gets_the_password_from_the_keyring(machine, laptop, monkeypatch, tmp_path):
    host_machine = machine(password=CANARY, pubkeys=False)
    host = by_ssh(laptop, host_machine, monkeypatch, key="own", password=True)
    kept: dict[str, str] = {}
    monkeypatch.setattr("mlworkbench.secret.stored", kept.get)
    with pytest.raises(HostError, match="no longer in the keyring"):
        host.connect()
    kept[host.attachment.keyring_name] = CANARY
    with watched(CANARY) as found:
        assert host.ask({"do": "hello"})["ok"]
        host.disconnect()
    assert found == [] and files_with(CANARY, tmp_path, laptop.runtime) == []
    kept[host.attachment.keyring_name] = "changed since"
    with pytest.raises(LoginRefused):
        host.connect()
    assert host_machine.log.count("Failed password") == 1


def test_a_server_that_allows_one_session_only(machine, laptop, monkeypatch):
    host_machine = machine(sshd="MaxSessions 1")
    first = by_ssh(laptop, host_machine, monkeypatch)
    second = SshHost(first.attachment, UserPaths(laptop.store))
    assert first.ask({"do": "hello"})["ok"]
    assert second.ask({"do": "hello"})["ok"]  # by a connection of its own
    assert first.ask({"do": "hello"})["ok"]
    second.close()
    first.disconnect()


def test_a_plugins_starter_travels_with_the_agent(machine, laptop, monkeypatch):
    host_machine = machine()
    plain = by_ssh(laptop, host_machine, monkeypatch)
    plain.connect()
    write_job_script(host_machine.home)
    starter = EXAMPLES / "sshscript" / "mlw_sshscript_starter.py"
    host = SshHost(plain.attachment, UserPaths(laptop.store), starter=str(starter))
    place = DistantPlace(host_machine)
    place.add_run("r", "print('hello')", starter=f"plugin:{starter.stem}")
    assert host.call("start", "r", ["n"], {"secrets": {}}) == {"ok": True, "claimed": True}
    until(lambda: b'"finished"' in host.news("r", {"events.jsonl": 0}, 1 << 20).parts["events.jsonl"])
    assert host.news("r", {"log": 0}, 100).parts["log"] == b"hello\n"
    assert len(list((host_machine.home / "jobs").iterdir())) == 1, "started by the script"
    until(lambda: host.ask({"do": "status", "runs": ["r"]})["runs"] == {"r": {"state": "ended"}})
    assert len(list((place.root / "lib").iterdir())) == 2, "the agent with it, and the one without"
    assert plain.ask({"do": "status", "runs": ["r"]})["runs"]["r"]["state"] == "unknown", "which does not know it"
    host.disconnect()
    plain.disconnect()
