"""Every way into `mlw ui`, as the application itself lists them; and somebody who tries them all."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport="
# What no list has: the door itself, what servers of this kind often have, and what is nowhere.
UNLISTED = (
    "/login", "/logout", "/docs", "/redoc", "/docs/oauth2-redirect", "/openapi.json", "/favicon.ico", "/metrics",
    "/_nicegui", "/_nicegui_ws/", SOCKET + "polling", SOCKET + "websocket", "/static/mlw.css", "/no/such/page",
    "/.well-known/appspecific/com.chrome.devtools.json", "/api", "/api/", "/static/", "/robots.txt",
)  # fmt: skip

# NiceGUI has one application for each process, so it is asked in a process of its own.
_LIST = """
import json, sys, tempfile
from pathlib import Path
from mlworkbench.paths import UserPaths
from mlworkbench.ui.app import make
found = []
def walk(routes, before=""):
    for route in routes:
        if hasattr(route, "effective_candidates"):
            walk(route.effective_candidates(), before)
            continue
        path = before + (getattr(route, "path", None) or "")
        inner = getattr(getattr(route, "app", None), "routes", None)
        kind = type(getattr(route, "app", None)).__name__
        found.append([path, sorted(getattr(route, "methods", None) or []), kind])
        walk(inner or [], path)
with tempfile.TemporaryDirectory() as place:
    app = make(UserPaths(Path(place)), None, lambda: "")
    walk(app.routes)
    print(json.dumps({"routes": found, "openapi": app.openapi()}))
"""


@dataclass(frozen=True)
class Route:
    """``path`` may have gaps: ``/p/{key}``."""

    path: str
    methods: tuple[str, ...]

    def filled(self, **known: str) -> str:
        """With these in its gaps, and a word in the others."""
        return re.sub(r"\{(\w+)(?::\w+)?\}", lambda gap: known.get(gap[1], "x"), self.path)


@cache
def _told() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _LIST],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def routes() -> list[Route]:
    return [Route(path or "/", tuple(methods)) for path, methods, _ in _told()["routes"]]


def openapi() -> dict[str, Any]:
    return dict(_told()["openapi"])


def addresses(**known: str) -> list[str]:
    """One for each route, sub-application and unlisted place."""
    return sorted({*(route.filled(**known) for route in routes()), *UNLISTED})


def pages() -> list[Route]:
    """What people look at: no API, no files."""
    inside = ("/api", "/_nicegui", "/static")
    return [one for one in routes() if "GET" in one.methods and not one.path.startswith(inside)]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    doubled: tuple[str, ...] = ()


@dataclass
class Caller:
    """Asks over one connection, as often as it likes."""

    address: str
    headers: dict[str, str] = field(default_factory=dict)
    _line: http.client.HTTPConnection | None = None

    @property
    def host(self) -> str:
        return self.address.removeprefix("http://").partition("/")[0]

    @property
    def place(self) -> tuple[str, int]:
        """Browsers resolve names below .localhost themselves; this machine may not."""
        host, _, port = self.host.rpartition(":")
        return "127.0.0.1" if host.endswith(".localhost") else host, int(port)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """``_`` stands for ``-`` in the name of a header."""
        for patience in (1, 0):
            if self._line is None:
                self._line = http.client.HTTPConnection(*self.place, timeout=30)
            try:
                given = {name.replace("_", "-"): value for name, value in headers.items()}
                base = self.address.removeprefix("http://").removeprefix(self.host)
                self._line.request(method, base + path, body, {"Host": self.host, **self.headers, **given})
                got = self._line.getresponse()
                told = [(name.lower(), value) for name, value in got.getheaders()]
                names = [name for name, _ in told]
                doubled = tuple(sorted({name for name in names if names.count(name) > 1} - {"set-cookie"}))
                return Answer(got.status, dict(told), got.read(), doubled)
            except (http.client.HTTPException, ConnectionError):
                self.close()
                if not patience:
                    raise
        raise AssertionError

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def raw(self, data: bytes, seconds: float = 20) -> bytes:
        """What comes back for these bytes, until the other side has had enough."""
        with socket.create_connection(self.place, timeout=seconds) as line:
            found = b""
            try:
                line.sendall(data)
                line.shutdown(socket.SHUT_WR)
                while chunk := line.recv(1 << 16):
                    found += chunk
            except OSError:
                pass
            return found


def free_port() -> str:
    """For a server that is started again at the same place: other tests take those from 8521 on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def token_of(store: Path) -> str:
    return str(json.loads((store / "ui" / "server.json").read_text())["token"])


def secret_of(store: Path) -> str:
    """Of the address for browsers."""
    return str(json.loads((store / "ui" / "address.json").read_text())["secret"])


def program(bench: Any, store: Path) -> Caller:
    """A program of this user."""
    return Caller(bench.numeric, {"Authorization": f"Bearer {token_of(store)}"})


def session(bench: Any, link: str | None = None) -> str:
    """A browser's cookie, by a link that was not used yet."""
    link = link or bench.link
    answer = Caller(bench.address).ask("GET", link.removeprefix(bench.address))
    assert answer.status == 200, answer
    return answer.headers["set-cookie"].partition(";")[0]


def new_link(bench: Any, store: Path) -> str:
    return str(json.loads(program(bench, store).ask("POST", "/api/link").body)["link"])
