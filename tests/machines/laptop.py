"""The person's own computer: an empty home, a store of their own, no agent, no engine but the one that is given."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pexpect

from tests.conftest import MLW, Done, User
from tests.machines.engine import Engine
from tests.machines.machine import Machine

KEYRING = """
import json, pathlib
import keyring.backend, keyring.errors

FILE = pathlib.Path(__file__).with_name("secrets.json")

class FileKeyring(keyring.backend.KeyringBackend):
    priority = 1

    def _all(self):
        return json.loads(FILE.read_text()) if FILE.exists() else {}

    def get_password(self, service, username):
        return self._all().get(service, {}).get(username)

    def set_password(self, service, username, password):
        known = self._all()
        known.setdefault(service, {})[username] = password
        FILE.write_text(json.dumps(known))

    def delete_password(self, service, username):
        known = self._all()
        if known.get(service, {}).pop(username, None) is None:
            raise keyring.errors.PasswordDeleteError(username)
        FILE.write_text(json.dumps(known))
"""


class Laptop(User):
    """`mlw` runs a command to its end, `start` leaves it running, `spawn` gives it a terminal for its questions."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        # Sockets have short names, so not below pytest's long folders; removed by the fixture.
        self.runtime = Path(tempfile.gettempdir(), f"laptop-{os.getpid()}-{abs(hash(place)) % 10**6}")
        self.runtime.mkdir(mode=0o700)
        self.env["XDG_RUNTIME_DIR"] = str(self.runtime)
        self.env["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

    @property
    def ssh_folder(self) -> Path:
        folder = self.home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def knows(self, *machines: Machine) -> None:
        """Their host keys are in known_hosts, as after a first visit."""
        with (self.ssh_folder / "known_hosts").open("a") as file:
            file.writelines(machine.host_key for machine in machines)

    def ssh_config(self, text: str) -> Path:
        path = self.ssh_folder / "config"
        path.write_text(text)
        path.chmod(0o600)
        return path

    def uses(self, engine: Engine) -> None:
        """The docker program on this laptop talks to that engine."""
        self.env["DOCKER_HOST"] = engine.host

    def ssh(self, machine: Machine, *command: str, options: tuple[str, ...] = (), check: bool = True) -> Done:
        """Plain ssh with the machine's key, for a look of the test's own."""
        # OpenSSH takes the home from the system's list of users, not from HOME: so all is said.
        argv = ["ssh", "-F", "none", "-i", str(machine.key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        argv += ["-o", f"UserKnownHostsFile={self.ssh_folder}/known_hosts", "-p", str(machine.port)]
        return self._run([*argv, *options, f"{machine.user}@{machine.address}", *command], check)

    def ssh_by_password(self, machine: Machine, password: str, *command: str, check: bool = True) -> Done:
        """Plain ssh that gets the password from an SSH_ASKPASS program."""
        helper = self.home / "askpass"
        helper.write_text('#!/bin/sh\nprintf "%s\\n" "$TEST_PASSWORD"\n')
        helper.chmod(0o700)
        more = {"SSH_ASKPASS": str(helper), "SSH_ASKPASS_REQUIRE": "force", "TEST_PASSWORD": password}
        argv = ["ssh", "-F", "none", "-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=1"]
        argv += ["-o", f"UserKnownHostsFile={self.ssh_folder}/known_hosts"]
        return self._run([*argv, f"{machine.user}@{machine.address}", *command], check, more)

    def spawn(self, *words: str, cwd: Path | None = None, timeout: float = 30, **env: str) -> pexpect.spawn[str]:
        """mlw at a terminal: `.expect("Password")`, `.sendline(…)`."""
        return pexpect.spawn(
            str(MLW),
            list(words),
            cwd=str(cwd or self.home),
            env={**self.env, "TERM": "xterm", **env},
            encoding="utf-8",
            timeout=timeout,
            dimensions=(40, 160),
        )

    def mlw(self, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any) -> Done:
        """As `User.mlw`, and `input="text"` for its stdin, `check=True` for exit code 0 or a failure."""
        text, check = more.pop("input", None), more.pop("check", False)
        if text is not None:
            with tempfile.TemporaryFile() as file:
                file.write(text.encode())
                file.seek(0)
                result = super().mlw(*words, cwd=cwd, env=env, stdin=file, **more)
        else:
            result = super().mlw(*words, cwd=cwd, env=env, **more)
        assert not check or result.code == 0, result
        return result

    def has_keyring(self) -> Path:
        """A keyring that works (at first there is none, as on a server). What it holds is in the file returned."""
        folder = self.home / ".keyring"
        folder.mkdir()
        (folder / "laptop_keyring.py").write_text(KEYRING)
        self.env["PYTHON_KEYRING_BACKEND"] = "laptop_keyring.FileKeyring"
        self.env["PYTHONPATH"] = str(folder)
        return folder / "secrets.json"

    def _run(self, argv: list[str], check: bool, env: dict[str, str] | None = None) -> Done:
        done = subprocess.run(
            argv,
            env={**self.env, **(env or {})},
            cwd=self.home,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        result = Done(done.returncode, done.stdout, done.stderr)
        assert not check or result.code == 0, result
        return result
