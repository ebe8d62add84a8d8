"""A real Docker registry with one user and a password, beside the engine."""

from __future__ import annotations

import socket
import subprocess

from tests.machines.engine import Engine
from tests.machines.network import wait_until
from tests.machines.programs import call, crypted, environment
from tests.machines.sandbox import Sandbox

PORT = 5000
SETTINGS = """\
version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {folder}/data}}
  delete: {{enabled: true}}
http: {{addr: {address}}}
auth:
  htpasswd: {{realm: test, path: {folder}/users}}
"""


class Registry:
    """A running registry. `address`: host:port as the engine sees it; `image`: its image, which needs the password."""

    def __init__(self, sandbox: Sandbox, engine: Engine) -> None:
        self.user, self.password = "ada", "open sesame"
        self.address = f"{engine.address}:{PORT}"
        self.image = f"{self.address}/private/debian:1"
        self._engine = engine
        self.folder = sandbox.folder / "registry"
        self.folder.mkdir()
        secret = crypted(self.password, "$2y$05$mlwmlwmlwmlwmlwmlwmlwe")
        (self.folder / "users").write_text(f"{self.user}:{secret}\n")
        (self.folder / "config.yml").write_text(SETTINGS.format(folder=self.folder, address=self.address))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self._push()

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["nsenter", f"--net={self._engine.netns}", "docker-registry", "serve", str(self.folder / "config.yml")],
                env=environment(**self._engine.sandbox.marked),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._responds, f"the registry (see {self.folder}/log)")

    def stop(self) -> None:
        """Stop the registry: clients get `connection refused`."""
        if self._process:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _push(self) -> None:
        config = ("docker", "--host", self._engine.host, "--config", str(self.folder / "client"))
        call(*config, "login", "--username", self.user, "--password-stdin", self.address, text=self.password)
        call(*config, "tag", self._engine.image, self.image)
        call(*config, "push", self.image)
        self.forget()

    def forget(self) -> None:
        """Remove the image from the engine, so that the next use must pull it."""
        self._engine.docker("rmi", "--force", self.image, check=False)

    def _responds(self) -> bool:
        with socket.socket() as connection:
            connection.settimeout(1)
            return connection.connect_ex((self._engine.address, PORT)) == 0
