"""A Docker engine for the tests, with separate data, socket, and network. The computer's own Docker is not used."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from tests.evidence import copy_end, witnesses
from tests.machines.image import IMAGE, import_image
from tests.machines.network import ENGINE, Namespace, Switch, read, wait_until
from tests.machines.programs import call, environment
from tests.machines.sandbox import Sandbox, kill_group

GROUP = 20999  # Group that may use the socket.
# There is no name server behind the switch: lookups fail at once instead of after 20 seconds.
NO_NAMES = """\
add table inet names
add chain inet names output { type filter hook output priority 0; }
add rule inet names output meta l4proto { tcp, udp } th dport 53 reject
"""

# By default, an idle containerd wakes up every few milliseconds for its garbage collection: 1.3 % of a processor.
CONTAINERD = """\
version = 2
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[plugins."io.containerd.gc.v1.scheduler"]
pause_threshold = 0.0001
"""


class Engine:
    """An engine to `start` and `stop` repeatedly; its data remain until the end of the session."""

    def __init__(self, sandbox: Sandbox, switch: Switch) -> None:
        self.sandbox = sandbox
        self.folder = sandbox.folder / "engine"
        self.shared = self.folder / "run"  # Machines see this folder, which contains only the socket.
        self.shared.mkdir(parents=True)
        self.socket = self.shared / "docker.sock"
        self.address = sandbox.address(ENGINE)
        self.image = IMAGE
        self.cgroup = f"/{sandbox.cgroup}/engine"
        self.usual = False
        self._namespace = Namespace(sandbox)
        switch.join(self._namespace.pid, ENGINE)
        call("nsenter", f"--net={self.netns}", "nft", "-f", "-", text=NO_NAMES)
        self._dockerd: subprocess.Popen[bytes] | None = None
        self._containerd_socket = self._start_containerd()
        witnesses.add(self)

    @property
    def host(self) -> str:
        """Return the value for DOCKER_HOST."""
        return f"unix://{self.socket}"

    @property
    def netns(self) -> str:
        return self._namespace.path

    def start(self, live_restore: bool = False, gpus: bool = False, *options: str) -> None:
        """Start the engine. `gpus`: accept --gpus, as with NVIDIA's tools (a hook that does nothing)."""
        assert self._dockerd is None, "it is running"
        argv = [
            *("nsenter", f"--net={self.netns}", "dockerd"),
            *("--containerd", str(self._containerd_socket)),
            *("--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec")),
            *("--host", self.host, "--pidfile", str(self.folder / "pid"), "--group", str(GROUP)),
            *("--cgroup-parent", self.cgroup, "--insecure-registry", f"{self.address}/24"),
            *(["--live-restore"] if live_restore else []),
            *options,
        ]
        self.usual = not (live_restore or gpus or options)
        self._dockerd = self._run(argv, self._environment(gpus))
        wait_until(self._responds, f"the engine (see {self.folder}/log)")

    def stop(self) -> None:
        """Stop the engine like `systemctl stop docker`: containers end, too, without --live-restore."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill only the engine; its containers continue."""
        self._end(signal.SIGKILL)

    @property
    def running(self) -> bool:
        return self._dockerd is not None and self._dockerd.poll() is None

    def docker(self, *arguments: str, check: bool = True, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run docker without stored logins, independent of this computer's configuration."""
        config = ("--host", self.host, "--config", str(self.folder / "client"))
        return call("docker", *config, *arguments, check=check, text=text, timeout=120)

    def containers(self) -> list[str]:
        """Return the names of all containers, including stopped ones."""
        return [
            name.lstrip("/")
            for container in engine_request(self.socket, "/containers/json?all=1")
            for name in container["Names"]
        ]

    def inspect(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.docker("inspect", name).stdout)[0])

    def load_image(self, tag: str = IMAGE, *changes: str) -> str:
        """Create the small Debian image (with changes such as 'ENTRYPOINT ["/bin/cat"]')."""
        return import_image(["docker", "--host", self.host], tag, *changes)

    def clean_up(self) -> None:
        """Restore the initial state after a test, without containers."""
        if not self.running:
            kill_group(self.cgroup)  # kill leftover containers: the new engine would wait ten seconds for each
            self._dockerd = None
            self.start()
        if names := self.containers():
            self.docker("rm", "--force", "--volumes", *names)
        if not self.usual:
            self.stop()
            self.start()

    def keep(self, folder: Path) -> None:
        """Save the engine's logs as evidence of a failed test."""
        copy_end(self.folder / "log", folder)
        if self.running:
            (folder / "containers.txt").write_text(self.docker("ps", "--all", check=False).stdout)

    def close(self) -> None:
        witnesses.discard(self)
        kill_group(self.cgroup)
        if self.running:
            self.kill()
        self._containerd.kill()
        self._containerd.wait()
        self._namespace.close()

    def _end(self, number: int) -> None:
        assert self._dockerd, "it is not running"
        self._dockerd.send_signal(number)
        self._dockerd.wait(60)
        self._dockerd = None
        self.socket.unlink(missing_ok=True)

    def _start_containerd(self) -> Path:
        """Start containerd as a separate service, as on Debian: it and the containers survive a killed engine."""
        folder = self.folder / "containerd"
        folder.mkdir()
        path = folder / "containerd.sock"
        argv = [
            "containerd",
            "--address",
            str(path),
            "--root",
            str(folder / "root"),
            "--state",
            str(folder / "state"),
        ]
        (folder / "config.toml").write_text(CONTAINERD)
        self._containerd = self._run(
            [*argv, "--config", str(folder / "config.toml")], environment(**self.sandbox.marked)
        )
        wait_until(path.exists, "containerd")
        return path

    def _run(self, argv: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _responds(self) -> bool:
        assert self._dockerd
        if self._dockerd.poll() is not None:
            raise RuntimeError(f"the engine did not start:\n{read(self.folder / 'log')[-3000:]}")
        return responds(self.socket)

    def _environment(self, gpus: bool) -> dict[str, str]:
        variables = environment(**self.sandbox.marked)
        if gpus:
            hook = self.folder / "nvidia" / "nvidia-container-runtime-hook"
            hook.parent.mkdir(exist_ok=True)
            hook.write_text("#!/bin/sh\nexec cat >/dev/null\n")
            hook.chmod(0o755)
            variables["PATH"] = f"{hook.parent}:{variables['PATH']}"
        return variables


def engine_request(path: Path, what: str) -> Any:
    """Return the response of the engine at this socket, without the docker program."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall(f"GET {what} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n".encode())
        with HTTPResponse(connection) as reply:
            reply.begin()
            text = reply.read()
            if reply.status != HTTPStatus.OK:
                raise RuntimeError(f"{what}: {reply.status} {text!r}")
            return json.loads(text)


def responds(path: Path) -> bool:
    """Return whether an engine listens at this socket."""
    try:
        return bool(engine_request(path, "/version"))
    except OSError:
        return False


def programs() -> tuple[str, ...]:
    return ("dockerd", "containerd", "runc", "docker", "iptables", "ip", "nft", "nsenter", "unshare")
