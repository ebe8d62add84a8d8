"""The host contract of `mlworkbench.testing` on every host: this machine, a machine by SSH, and the fake."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attachments import Attachments
from mlworkbench.hosts.local import LocalHost
from mlworkbench.hosts.ssh import SshHost
from mlworkbench.paths import UserPaths
from mlworkbench.remote.shared.layout import Root
from mlworkbench.testing import FakeHost, HostContract, TargetFolder
from mlworkbench.testing.host_contract import HostFilesContract


class DistantPlace(TargetFolder):
    """The folder of a user on a machine reached by SSH; what a test puts there is made that user's."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine.home)
        self.root = machine.home / ".mlw"
        self.machine = machine

    def add_run(self, run_id: str, script: str, **changes: Any) -> Path:
        return super().add_run(run_id, script, **{"python": "/usr/bin/python3", **changes})

    def hand_over(self) -> None:
        subprocess.run(["chown", "-R", f"{self.machine.uid}:{self.machine.uid}", str(self.root)], check=True)


def by_ssh(laptop: Any, machine: Any, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> SshHost:
    """A host whose user has the machine's key and has met it before."""
    become(laptop, monkeypatch)
    paths = UserPaths(laptop.store)
    what = {"address": machine.address, "username": machine.user, "port": machine.port, **changes}
    draft = Attachments(paths).draft(
        f"{what['username']}@{what['address']}:{what['port']}", **{"key": f"file:{machine.key}", **what}
    )
    draft.known_hosts.write_text(f"[{what['address']}]:{what['port']} {machine.host_key.partition(' ')[2]}")
    if what["port"] == 22:
        draft.known_hosts.write_text(machine.host_key)
    return SshHost(Attachments(paths).save(draft), paths)


def become(laptop: Any, monkeypatch: pytest.MonkeyPatch) -> UserPaths:
    """This process is that person's, with no agent of the developer's."""
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
    def there(self, machine):
        return machine()

    @pytest.fixture
    def folder(self, there):
        return DistantPlace(there)

    @pytest.fixture
    def host(self, laptop, there, monkeypatch):
        host = by_ssh(laptop, there, monkeypatch)
        yield host
        host.disconnect()


class TestFakeHost(HostFilesContract):
    """The fake reads files as real hosts do."""

    @pytest.fixture
    def host(self, folder):
        return FakeHost(folder.root)
