"""Connections to real sshd hosts: authentication methods, unusual shells, and messages about missing parts."""

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
from mlworkbench.hosts import channel, first_contact
from mlworkbench.hosts.openssh import HostKeyChanged, HostKeyUnknown, LoginRefused
from mlworkbench.hosts.ssh_host import SshHost
from mlworkbench.paths import UserPaths
from tests.contract.test_host import RemoteFolder, act_as, make_ssh_host
from tests.e2e.example_plugins import EXAMPLES, write_job_script
from tests.supervisor.conftest import until

CANARY = "canary-Pa55word"


def draft_of(paths: UserPaths, machine: Any, **more: Any) -> Attachment:
    resolved = first_contact.resolve(machine.address, machine.user)
    return Attachments(paths).draft(
        resolved.identity, address=machine.address, username=resolved.username, port=resolved.port, **more
    )


@contextmanager
def watch_for_secret(secret: str) -> Iterator[list[str]]:
    """Search the command lines and environments of all other processes for the secret while the block runs."""
    leaks: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for pid in [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
                for file in ("cmdline", "environ"):
                    try:
                        if secret.encode() in Path(f"/proc/{pid}/{file}").read_bytes():
                            leaks.append(f"{file} of {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
                    except OSError:
                        continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield leaks
    finally:
        over.set()
        thread.join()


def files_containing(secret: str, *folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes()
    ]


def test_password_is_used_once_to_install_key(machine, laptop, monkeypatch, tmp_path):
    paths, host_machine = act_as(laptop, monkeypatch), machine(password=CANARY)
    draft = draft_of(paths, host_machine)
    contact = first_contact.contact_host(draft)
    assert (contact.trusted, contact.fingerprint) == (False, host_machine.host_key_fingerprint)
    assert contact.methods == ("publickey", "password")
    assert first_contact.matches_host_key(
        contact, host_machine.host_key_fingerprint
    ) and first_contact.matches_host_key(contact, host_machine.host_key)
    assert not first_contact.matches_host_key(contact, "SHA256:" + "A" * 43)
    assert not first_contact.try_keys(draft)
    with pytest.raises(LoginRefused, match="accepts publickey, password"):
        first_contact.login_with_password(draft, "wrong")
    assert host_machine.log.count("Failed password") == 1
    with watch_for_secret(CANARY) as leaks:
        first_contact.login_with_password(draft, CANARY)
        host = SshHost(draft, paths)
        key, line = first_contact.create_key(draft, "mlworkbench-test")
        assert host.ask({"do": "key", "action": "add", "line": line}) == {"ok": True, "changed": True}
        assert first_contact.key_works(key)
        host.disconnect()
    assert leaks == []
    saved = Attachments(paths).save(key)
    assert Attachments(paths).find(host_machine.address, host_machine.user) == saved
    again = SshHost(saved, paths)
    assert again.ask({"do": "hello"})["ok"]
    assert again.ask({"do": "key", "action": "remove", "line": line})["changed"]
    again.disconnect()
    assert not first_contact.key_works(saved)
    assert files_containing(CANARY, tmp_path, laptop.runtime, host_machine.home) == []
    assert [path.name for path in laptop.ssh_folder.iterdir()] == []
    modes = {path.name: path.stat().st_mode & 0o777 for path in [saved.folder, *saved.folder.iterdir()]}
    assert {name: mode for name, mode in modes.items() if mode & 0o077 and name not in ("key.pub", "sent")} == {}


def test_server_that_accepts_only_keys(machine, laptop, monkeypatch):
    paths, host_machine = act_as(laptop, monkeypatch), machine()
    draft = draft_of(paths, host_machine)
    assert first_contact.contact_host(draft).methods == ("publickey",)
    assert not first_contact.try_keys(draft)
    with pytest.raises(LoginRefused, match="accepts publickey") as refused:
        first_contact.login_with_password(draft, CANARY)
    assert "accepts only keys" in str(refused.value.hint)
    draft = first_contact.use_key_file(draft, host_machine.key)
    assert first_contact.try_keys(draft)
    host = SshHost(draft, paths)
    assert host.ask({"do": "hello"})["uid"] == host_machine.uid
    host.disconnect()


def test_key_with_passphrase(machine, laptop, monkeypatch):
    import subprocess

    paths, host_machine = act_as(laptop, monkeypatch), machine()
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", CANARY, "-f", str(host_machine.key)], check=True)
    draft = first_contact.use_key_file(draft_of(paths, host_machine), host_machine.key)
    first_contact.contact_host(draft)
    assert not first_contact.try_keys(draft)
    prompts: list[str] = []

    def answer(question: str) -> str | None:
        prompts.append(question)
        return CANARY if len(prompts) == 1 else None

    with watch_for_secret(CANARY) as leaks:
        assert first_contact.try_keys(draft, answer)
    assert leaks == []
    assert "passphrase" in prompts[0] and len(prompts) == 1
    SshHost(draft, paths).disconnect()


def test_alias_from_user_ssh_config(machine, laptop, monkeypatch):
    paths, host_machine = act_as(laptop, monkeypatch), machine()
    laptop.trust_host_keys(host_machine)
    laptop.ssh_config(
        f"Host box\n HostName {host_machine.address}\n User {host_machine.user}\n IdentityFile {host_machine.key}\n"
        " RequestTTY force\n RemoteCommand echo hijacked\n LocalForward 1234 localhost:1234\n ForwardAgent yes\n"
    )
    resolved = first_contact.resolve("box")
    assert (resolved.host, resolved.username, resolved.port) == (host_machine.address, host_machine.user, 22)
    draft = Attachments(paths).draft(resolved.identity, address="box", username=resolved.username, port=resolved.port)
    assert first_contact.contact_host(draft).trusted
    assert first_contact.try_keys(draft)
    host = SshHost(draft, paths)
    assert host.ask({"do": "hello"})["ok"]
    host.disconnect()


def test_host_behind_jump_host(machine, laptop, monkeypatch):
    act_as(laptop, monkeypatch)
    gate = machine(user="gate")
    inner = machine(jump=gate)
    laptop.trust_host_keys(gate)
    laptop.ssh_config(f"Host {gate.address}\n IdentityFile {gate.key}\n IdentitiesOnly yes\n")
    host = make_ssh_host(laptop, inner, monkeypatch, jump=f"gate@{gate.address}:22")
    assert host.ask({"do": "hello"})["uid"] == inner.uid
    host.disconnect()
    with pytest.raises(Unreachable):
        make_ssh_host(laptop, inner, monkeypatch, jump=None, address="10.255.255.1").connect()


def test_password_is_not_sent_to_jump_host(machine, laptop, monkeypatch):
    paths = act_as(laptop, monkeypatch)
    gate = machine(user="gate", password="another")
    inner = machine(jump=gate, password=CANARY)
    laptop.trust_host_keys(gate)
    draft = draft_of(paths, inner, jump=f"gate@{gate.address}")
    draft.known_hosts.write_text(inner.host_key)
    prompts: list[str] = []
    with pytest.raises(HostError):
        first_contact.login_with_password(draft, CANARY, lambda question: prompts.append(question))
    assert len(prompts) == 1 and "gate@" in prompts[0]
    first_contact.login_with_password(draft, CANARY, lambda question: "another" if "gate@" in question else None)
    host = SshHost(draft, paths)
    assert host.ask({"do": "hello"})["uid"] == inner.uid
    host.disconnect()


def test_changed_host_key_blocks_connection(machine, laptop, monkeypatch):
    host_machine = machine(password=CANARY, sshd="LogLevel DEBUG2")
    host = make_ssh_host(laptop, host_machine, monkeypatch)
    host.connect()
    host.disconnect()
    host_machine.change_host_key()
    before = host_machine.log
    with pytest.raises(HostKeyChanged, match="nothing was sent") as changed:
        SshHost(host.attachment, UserPaths(laptop.store)).connect()
    assert changed.value.fingerprint == host_machine.host_key_fingerprint
    with pytest.raises(HostKeyChanged):
        first_contact.login_with_password(replace(host.attachment, key="own"), CANARY)
    after = host_machine.log[len(before) :]
    assert "Connection from" in after and "userauth-request" not in after and "Failed" not in after


def test_conflict_with_user_known_hosts(machine, laptop, monkeypatch):
    paths, host_machine = act_as(laptop, monkeypatch), machine()
    laptop.trust_host_keys(host_machine)
    host_machine.change_host_key()
    with pytest.raises(HostKeyChanged):
        first_contact.contact_host(draft_of(paths, host_machine))


def test_unaccepted_host_key_is_refused(machine, laptop, monkeypatch):
    paths, host_machine = act_as(laptop, monkeypatch), machine()
    draft = first_contact.use_key_file(draft_of(paths, host_machine), host_machine.key)
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
    host = make_ssh_host(laptop, host_machine, monkeypatch)
    host.connect()  # uploads the library
    host.close()
    host.connect()  # finds the uploaded library
    assert host.ask({"do": "hello"})["ok"]
    (host_machine.home / ".mlw" / "lib").rename(host_machine.home / ".mlw" / "gone")
    host.close()
    host.connect()  # the library was deleted on the host, but is still in the client's cache
    assert host.ask({"do": "hello"})["ok"]
    host.disconnect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shell": "/usr/sbin/nologin"}, "not available"),
        ({"python": "no"}, "no Python 3.8"),
        ({"sshd": "ForceCommand echo only backups here"}, "only backups here"),
        ({"rc": "exit 3"}, "runs no commands: .* exit code 3; .* ~/.bashrc"),
        ({"rc": "exec dash"}, "it does not respond; .* ~/.bashrc"),
    ],
)
def test_unusable_accounts(machine, laptop, monkeypatch, options, message):
    monkeypatch.setattr(channel, "SHELL_TIMEOUT", 2.0)
    host = make_ssh_host(laptop, machine(**options), monkeypatch)
    with pytest.raises(HostError, match=message) as refused:
        host.connect()
    assert refused.value.hint and ("case $- in" in refused.value.hint) == ("python" not in options)
    host.disconnect()


@contextmanager
def raw_server(greeting: bytes) -> Iterator[int]:
    """Run a server that is not sshd, and yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                caller, _ = listener.accept()
            except TimeoutError:
                continue
            with caller:
                caller.sendall(greeting)
                caller.settimeout(2)
                try:
                    while caller.recv(1000):
                        pass
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    over.set()
    thread.join()
    listener.close()


@pytest.mark.parametrize(
    ("greeting", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\x1b[31mred\r\n\r\n", "is not an SSH server; it sent: HTTP/1.1 400"),
        (b"\0\1\2" * 400 + b"\r\n", "not an SSH server|before the login"),
    ],
)
def test_server_that_is_not_ssh(laptop, monkeypatch, greeting, message):
    paths = act_as(laptop, monkeypatch)
    with raw_server(greeting) as port:
        draft = Attachments(paths).draft(f"a@127.0.0.1:{port}", address="127.0.0.1", username="a", port=port)
        for act in (lambda: SshHost(draft, paths).connect(), lambda: first_contact.contact_host(draft)):
            with pytest.raises(Unreachable, match=message) as refused:
                act()
            assert "\x1b" not in refused.value.message


def test_unreachable_address(laptop, monkeypatch):
    paths = act_as(laptop, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    draft = Attachments(paths).draft(f"a@127.0.0.1:{port}", address="127.0.0.1", username="a", port=port)
    with pytest.raises(Unreachable, match="refused the connection"):
        SshHost(draft, paths).connect()
    draft = replace(draft, address="no-such-host.invalid")
    with pytest.raises(Unreachable, match="host name .* not found"):
        SshHost(draft, paths).connect()


@pytest.mark.parametrize("address", ["-oProxyCommand=touch", "a b", "a;b", "a$b", "a'b", "", "a\nb", "host:22:", "`x`"])
def test_dangerous_host_names_are_refused(address):
    with pytest.raises(UsageError):
        first_contact.resolve(address)
    with pytest.raises(UsageError):
        first_contact.resolve("host", username=address or "-")
    with pytest.raises(UsageError):
        first_contact.resolve("host", jump=address or "-")


def test_warm_start_takes_few_round_trips(machine, laptop, monkeypatch):
    host_machine = machine()
    proxy = host_machine.proxy()
    host = make_ssh_host(laptop, host_machine, monkeypatch, address="127.0.0.1", port=proxy.port)
    host.connect()
    host.close()

    def warm() -> float:
        begun = time.monotonic()
        for verb in ("start", "adopt"):  # the request of a submit, and that of a later query
            host.call(verb, "nosuch", ["n"], {})
        host.close()
        return time.monotonic() - begun

    quick = min(warm() for _ in range(3))
    proxy.latency = 0.15
    trips = (min(warm() for _ in range(3)) - quick) / 0.3
    proxy.latency = 0
    host.disconnect()
    assert 2 <= trips <= 7, trips


def test_server_without_key_authentication_gets_password_from_keyring(machine, laptop, monkeypatch, tmp_path):
    host_machine = machine(password=CANARY, pubkeys=False)
    host = make_ssh_host(laptop, host_machine, monkeypatch, key="own", password=True)
    kept: dict[str, str] = {}
    monkeypatch.setattr("mlworkbench.secret_sources.stored", kept.get)
    with pytest.raises(HostError, match="no longer in the keyring"):
        host.connect()
    kept[host.attachment.keyring_name] = CANARY
    with watch_for_secret(CANARY) as leaks:
        assert host.ask({"do": "hello"})["ok"]
        host.disconnect()
    assert leaks == [] and files_containing(CANARY, tmp_path, laptop.runtime) == []
    kept[host.attachment.keyring_name] = "changed since"
    with pytest.raises(LoginRefused):
        host.connect()
    assert host_machine.log.count("Failed password") == 1


def test_server_that_allows_only_one_session(machine, laptop, monkeypatch):
    host_machine = machine(sshd="MaxSessions 1")
    first = make_ssh_host(laptop, host_machine, monkeypatch)
    second = SshHost(first.attachment, UserPaths(laptop.store))
    assert first.ask({"do": "hello"})["ok"]
    assert second.ask({"do": "hello"})["ok"]  # over a separate connection
    assert first.ask({"do": "hello"})["ok"]
    second.close()
    first.disconnect()


def test_plugin_starter_is_uploaded_with_agent(machine, laptop, monkeypatch):
    host_machine = machine()
    plain = make_ssh_host(laptop, host_machine, monkeypatch)
    plain.connect()
    write_job_script(host_machine.home)
    starter = EXAMPLES / "sshscript" / "mlw_sshscript_starter.py"
    host = SshHost(plain.attachment, UserPaths(laptop.store), starter=str(starter))
    place = RemoteFolder(host_machine)
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
