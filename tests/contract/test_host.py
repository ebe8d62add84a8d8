"""The host contract of `mlworkbench.testing` on every host: this machine, a machine over SSH, and the fake."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attachments import Attachments
from mlworkbench.hosts.local_host import LocalHost
from mlworkbench.hosts.ssh_host import SshHost
from mlworkbench.paths import UserPaths
from mlworkbench.remote.shared.layout import Root
from mlworkbench.testing import FakeHost, HostContract, TargetFolder
from mlworkbench.testing.host_contract import HostFilesContract


class RemoteFolder(TargetFolder):
    """mlw's folder on a machine reached over SSH. The machine's user becomes the owner of files that a test adds."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine.home)
        self.root = machine.home / ".mlw"
        self.machine = machine

    def add_run(self, run_id: str, script: str, **changes: Any) -> Path:
        return super().add_run(run_id, script, **{"python": "/usr/bin/python3", **changes})

    def hand_over(self) -> None:
        subprocess.run(["chown", "-R", f"{self.machine.uid}:{self.machine.uid}", str(self.root)], check=True)


def make_ssh_host(laptop: Any, machine: Any, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> SshHost:
    """Return a host whose user has an SSH key for the machine and has accepted its host key."""
    act_as(laptop, monkeypatch)
    paths = UserPaths(laptop.store)
    options = {"address": machine.address, "username": machine.user, "port": machine.port, **changes}
    draft = Attachments(paths).draft(
        f"{options['username']}@{options['address']}:{options['port']}", **{"key": f"file:{machine.key}", **options}
    )
    draft.known_hosts.write_text(f"[{options['address']}]:{options['port']} {machine.host_key.partition(' ')[2]}")
    if options["port"] == 22:
        draft.known_hosts.write_text(machine.host_key)
    return SshHost(Attachments(paths).save(draft), paths)


def act_as(laptop: Any, monkeypatch: pytest.MonkeyPatch) -> UserPaths:
    """Set the environment variables of the laptop's user, without the developer's SSH agent, and create the store."""
    for name in ("HOME", "XDG_RUNTIME_DIR", "MLW_HOME", "PYTHON_KEYRING_BACKEND"):
        monkeypatch.setenv(name, laptop.env[name])
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    laptop.store.mkdir(mode=0o700, exist_ok=True)
    return UserPaths(laptop.store)


class TestLocalHost(HostContract):
    @pytest.fixture
    def host(self, folder, tmp_path):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MLW_RUN_ID": "an-outer-run"}
        return LocalHost(Root(str(folder.root)), environment)


class TestSshHost(HostContract):
    @pytest.fixture
    def remote(self, machine):
        return machine()

    @pytest.fixture
    def folder(self, remote):
        return RemoteFolder(remote)

    @pytest.fixture
    def host(self, laptop, remote, monkeypatch):
        host = make_ssh_host(laptop, remote, monkeypatch)
        yield host
        host.disconnect()


class TestFakeHost(HostFilesContract):
    """The fake host satisfies the part of the contract that concerns reading files."""

    @pytest.fixture
    def host(self, folder):
        return FakeHost(folder.root)
