"""The user's own computer: an empty home and store, no SSH agent, and only the given engine."""

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
    """A laptop: `mlw` runs a command to its end, `start` leaves it running, `spawn` gives it a terminal."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        # Socket paths must be short, so this folder is not below pytest's folders. The fixture removes it.
        self.runtime = Path(tempfile.gettempdir(), f"laptop-{os.getpid()}-{abs(hash(place)) % 10**6}")
        self.runtime.mkdir(mode=0o700)
        self.env["XDG_RUNTIME_DIR"] = str(self.runtime)
        self.env["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

    @property
    def ssh_folder(self) -> Path:
        folder = self.home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def trust_host_keys(self, *machines: Machine) -> None:
        """Add the host keys to known_hosts, as after a first connection."""
        with (self.ssh_folder / "known_hosts").open("a") as file:
            file.writelines(machine.host_key for machine in machines)

    def ssh_config(self, text: str) -> Path:
        path = self.ssh_folder / "config"
        path.write_text(text)
        path.chmod(0o600)
        return path

    def use_engine(self, engine: Engine) -> None:
        """Make the docker program on this laptop use that engine."""
        self.env["DOCKER_HOST"] = engine.host

    def ssh(self, machine: Machine, *command: str, options: tuple[str, ...] = (), check: bool = True) -> Done:
        """Run plain ssh with the machine's key; tests use it to check the machine."""
        # OpenSSH reads the home from the user database, not from HOME, so all paths are explicit.
        argv = ["ssh", "-F", "none", "-i", str(machine.key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        argv += ["-o", f"UserKnownHostsFile={self.ssh_folder}/known_hosts", "-p", str(machine.port)]
        return self._run([*argv, *options, f"{machine.user}@{machine.address}", *command], check)

    def ssh_with_password(self, machine: Machine, password: str, *command: str, check: bool = True) -> Done:
        """Run plain ssh with a password from an SSH_ASKPASS program."""
        helper = self.home / "askpass"
        helper.write_text('#!/bin/sh\nprintf "%s\\n" "$TEST_PASSWORD"\n')
        helper.chmod(0o700)
        more = {"SSH_ASKPASS": str(helper), "SSH_ASKPASS_REQUIRE": "force", "TEST_PASSWORD": password}
        argv = ["ssh", "-F", "none", "-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=1"]
        argv += ["-o", f"UserKnownHostsFile={self.ssh_folder}/known_hosts"]
        return self._run([*argv, f"{machine.user}@{machine.address}", *command], check, more)

    def spawn(self, *arguments: str, cwd: Path | None = None, timeout: float = 30, **env: str) -> pexpect.spawn[str]:
        """Start mlw at a terminal: `.expect("Password")`, `.sendline(…)`."""
        return pexpect.spawn(
            str(MLW),
            list(arguments),
            cwd=str(cwd or self.home),
            env={**self.env, "TERM": "xterm", **env},
            encoding="utf-8",
            timeout=timeout,
            dimensions=(40, 160),
        )

    def mlw(self, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any) -> Done:
        """Run mlw like `User.mlw`, with `input="text"` for stdin and `check=True` to require exit code 0."""
        text, check = more.pop("input", None), more.pop("check", False)
        if text is not None:
            with tempfile.TemporaryFile() as file:
                file.write(text.encode())
                file.seek(0)
                result = super().mlw(*arguments, cwd=cwd, env=env, stdin=file, **more)
        else:
            result = super().mlw(*arguments, cwd=cwd, env=env, **more)
        assert not check or result.code == 0, result
        return result

    def enable_keyring(self) -> Path:
        """Set up a working keyring (the default is none, as on a server) and return the file with its content."""
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
