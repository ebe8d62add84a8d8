"""The same packages, installed by others: plain uv, pip, and a ``docker build``; each time from nothing."""

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

from away import missing
from context import Context
from tests.machines.engine import Engine  # away makes them to be found
from tests.machines.network import GATEWAY, Switch
from tests.machines.place import Place
from timing import Program, measure

UV = str(Path(sys.executable).parent / "uv")
_IN_IMAGE = "/etc/ssl/certs/ca-certificates.crt"
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock; and of processors, of the program and all that it waited for."""

    clock: float
    processor: float


def cost_of(program: Program) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    clock = measure(program).total
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def requirements(lock: dict[str, Any], sent: Path | str) -> str:
    """The lock's packages by their addresses, so that nobody has to look for them. ``sent``: where local wheels lie."""
    lines = []
    for one in lock["pip"]:
        address = one.get("url") or f"file://{pathname2url(str(sent))}/{one['file'].replace('+', '%2B')}"
        lines.append(f"{one['name']} @ {address}\n")
    return "".join(lines)


@dataclass(frozen=True)
class Floor:
    """A folder in which environments are made by hand from a list of packages, with a cache of their own."""

    context: Context
    folder: Path
    lock: dict[str, Any]
    sent: Path

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def uv(self, name: str = "uv", compiled: bool = True) -> Program:
        """``uv venv`` and ``uv pip install``; what the cache holds is taken from there."""
        place = self._fresh(name)
        settings = {"UV_CACHE_DIR": str(self.folder / "cache"), "UV_NO_CONFIG": "1", "UV_SYSTEM_CERTS": "1"}
        words = f"{UV} venv --quiet --no-project --python {self.context.interpreter} {place}"
        words += f" && {UV} pip install --quiet --python {place}/bin/python --no-deps -r {self._list(name)}"
        return self._shell(words + (" --compile-bytecode" if compiled else ""), settings)

    def pip(self) -> Program:
        """As the documentation of Python has it; pip compiles bytecode by itself."""
        place = self._fresh("pip")
        words = (
            f"{self.context.interpreter} -m venv {place} && {place}/bin/pip install --quiet --no-cache-dir --no-deps"
        )
        return self._shell(f"{words} -r {self._list('pip')}", {})

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

    def _shell(self, words: str, settings: dict[str, str]) -> Program:
        return Program(("sh", "-c", words), self.context.outside, {**self.context.environment, **settings})


# -- docker build --------------------------------------------------------------------------------------


@contextmanager
def builder(context: Context) -> Iterator[Callable[[dict[str, Any], Path], Cost] | None]:
    """Measures a ``docker build`` of a lock's packages, on an engine of our own; None where there is none."""
    if missing():
        yield None
        return
    with ExitStack() as stack:
        place = Place()
        stack.callback(place.close)
        switch = Switch(place)
        stack.callback(switch.close)
        engine = Engine(place, switch)
        stack.callback(engine.close)
        engine.start()
        engine.load_image()
        door = stack.enter_context(_door(place.address(GATEWAY)))

        def build(lock: dict[str, Any], sent: Path) -> Cost:
            folder = context.scratch / "image"
            shutil.rmtree(folder, ignore_errors=True)
            _write_dockerfile(folder, engine.image, lock, sent)
            options = ("--no-cache", "--network", "host", "--build-arg", f"https_proxy={door}", "--tag", "bench")
            words = ("docker", "--host", engine.host, "build", "--quiet", *options, str(folder))
            cost = cost_of(Program(words, context.outside, {**context.environment, "DOCKER_BUILDKIT": "0"}))
            engine.docker("image", "rm", "--force", "bench")
            return cost

        yield build


def _write_dockerfile(folder: Path, image: str, lock: dict[str, Any], sent: Path) -> None:
    """Wheels of this machine go with the build's context."""
    (folder / "wheels").mkdir(parents=True)
    for one in lock["pip"]:
        if not one.get("url"):
            (folder / "wheels" / one["file"]).hardlink_to(sent / one["file"])
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


class _Door(socketserver.StreamRequestHandler):
    """The engine has a network of its own with no way out: one request, CONNECT, leads to where packages are."""

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
        pass  # somebody hung up


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def _door(address: str) -> Iterator[str]:
    with _Server((address, 0), _Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{address}:{server.server_address[1]}"
        server.shutdown()
