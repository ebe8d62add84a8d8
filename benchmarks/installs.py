"""Install the same packages with other tools: plain uv, pip, and ``docker build``, each from scratch."""

from __future__ import annotations

import resource
import shutil
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import pathname2url

from context import Context
from remote_laptop import missing
from tests.machines.engine import Engine  # remote_laptop adds the repository to sys.path
from tests.machines.network import GATEWAY, Switch
from tests.machines.sandbox import Sandbox
from timing import Program, measure

UV = str(Path(sys.executable).parent / "uv")
_IN_IMAGE = "/etc/ssl/certs/ca-certificates.crt"
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Cost:
    """Wall-clock seconds, and CPU seconds of the program and all processes that it waited for."""

    clock: float
    processor: float


def cost_of(program: Program) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    clock = measure(program).total
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def requirements(lock: dict[str, Any], sent: Path | str) -> str:
    """Return the lock file's packages as URLs, so that no index lookup is needed. ``sent``: folder of local wheels."""
    lines = []
    for package in lock["pip"]:
        address = package.get("url") or f"file://{pathname2url(str(sent))}/{package['file'].replace('+', '%2B')}"
        lines.append(f"{package['name']} @ {address}\n")
    return "".join(lines)


@dataclass(frozen=True)
class Floor:
    """A folder with environments that are created from a package list without mlw, with a separate cache."""

    context: Context
    folder: Path
    lock: dict[str, Any]
    sent: Path

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def uv(self, name: str = "uv", compiled: bool = True) -> Program:
        """Return a program that runs ``uv venv`` and ``uv pip install``, using the cache where possible."""
        place = self._fresh(name)
        settings = {"UV_CACHE_DIR": str(self.folder / "cache"), "UV_NO_CONFIG": "1", "UV_SYSTEM_CERTS": "1"}
        command = f"{UV} venv --quiet --no-project --python {self.context.interpreter} {place}"
        command += f" && {UV} pip install --quiet --python {place}/bin/python --no-deps -r {self._list(name)}"
        return self._shell(command + (" --compile-bytecode" if compiled else ""), settings)

    def pip(self) -> Program:
        """Return a program that installs as in the Python documentation. pip compiles bytecode by default."""
        place = self._fresh("pip")
        command = (
            f"{self.context.interpreter} -m venv {place} && {place}/bin/pip install --quiet --no-cache-dir --no-deps"
        )
        return self._shell(f"{command} -r {self._list('pip')}", {})

    def python(self, name: str) -> Path:
        return self.folder / name / "bin" / "python"

    def _fresh(self, name: str) -> Path:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / name

    def _list(self, name: str) -> Path:
        path = self.folder / f"{name}.txt"
        path.write_text(requirements(self.lock, self.sent))
        return path

    def _shell(self, command: str, settings: dict[str, str]) -> Program:
        return Program(("sh", "-c", command), self.context.workspace, {**self.context.environment, **settings})


# -- docker build --------------------------------------------------------------------------------------


@contextmanager
def builder(context: Context) -> Iterator[Callable[[dict[str, Any], Path], Cost] | None]:
    """Yield a function that measures a ``docker build`` with a lock file's packages, or None without an engine."""
    if missing():
        yield None
        return
    with ExitStack() as stack:
        place = Sandbox()
        stack.callback(place.close)
        switch = Switch(place)
        stack.callback(switch.close)
        engine = Engine(place, switch)
        stack.callback(engine.close)
        engine.start()
        engine.load_image()
        proxy = stack.enter_context(_package_proxy(place.address(GATEWAY)))

        def build(lock: dict[str, Any], sent: Path) -> Cost:
            folder = context.scratch / "image"
            shutil.rmtree(folder, ignore_errors=True)
            _write_dockerfile(folder, engine.image, lock, sent)
            options = ("--no-cache", "--network", "host", "--build-arg", f"https_proxy={proxy}", "--tag", "bench")
            command = ("docker", "--host", engine.host, "build", "--quiet", *options, str(folder))
            cost = cost_of(Program(command, context.workspace, {**context.environment, "DOCKER_BUILDKIT": "0"}))
            engine.docker("image", "rm", "--force", "bench")
            return cost

        yield build


def _write_dockerfile(folder: Path, image: str, lock: dict[str, Any], sent: Path) -> None:
    """Write a Dockerfile and its build context, which includes the local wheels."""
    (folder / "wheels").mkdir(parents=True)
    for package in lock["pip"]:
        if not package.get("url"):
            (folder / "wheels" / package["file"]).hardlink_to(sent / package["file"])
    (folder / "requirements.txt").write_text(requirements(lock, "/wheels"))
    install = "/env/bin/pip install --quiet --no-cache-dir --no-deps -r /requirements.txt"
    lines = [
        f"FROM {image}",
        f"ENV PIP_CERT={_IN_IMAGE} PIP_DISABLE_PIP_VERSION_CHECK=1",
        "COPY requirements.txt /",
        "COPY wheels /wheels",
        f"RUN python3 -m venv /env && {install}",
    ]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")


class _PackageProxy(socketserver.StreamRequestHandler):
    """HTTP proxy for the engine, whose network has no internet access: CONNECT reaches the package index."""

    def handle(self) -> None:
        host, _, port = self.rfile.readline().split()[1].decode().rpartition(":")
        while self.rfile.readline().strip():
            pass
        with socket.create_connection((host, int(port)), timeout=60) as far:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_carry, args=(far, self.connection), daemon=True)
            back.start()
            _carry(self.connection, far)
            back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(_BLOCK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one side closed the connection


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def _package_proxy(address: str) -> Iterator[str]:
    with _Server((address, 0), _PackageProxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{address}:{server.server_address[1]}"
        server.shutdown()
