"""All routes of `mlw ui`, as the application lists them, and a client that tries them."""

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
# Unlisted paths: the login, common paths of such servers, and paths that do not exist.
UNLISTED = (
    "/login", "/logout", "/docs", "/redoc", "/docs/oauth2-redirect", "/openapi.json", "/favicon.ico", "/metrics",
    "/_nicegui", "/_nicegui_ws/", SOCKET + "polling", SOCKET + "websocket", "/static/mlw.css", "/no/such/page",
    "/.well-known/appspecific/com.chrome.devtools.json", "/api", "/api/", "/static/", "/robots.txt",
)  # fmt: skip

# NiceGUI has one application per process, so a separate process lists the routes.
_LIST = """
import json, sys, tempfile
from pathlib import Path
from mlworkbench.paths import UserPaths
from mlworkbench.ui.app import create_app
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
    app = create_app(UserPaths(Path(place)), None, lambda: "")
    walk(app.routes)
    print(json.dumps({"routes": found, "openapi": app.openapi()}))
"""


@dataclass(frozen=True)
class Route:
    """A route; ``path`` may have parameters: ``/p/{key}``."""

    path: str
    methods: tuple[str, ...]

    def filled(self, **values: str) -> str:
        """Return the path with these parameters, and a placeholder for the others."""
        return re.sub(r"\{(\w+)(?::\w+)?\}", lambda gap: values.get(gap[1], "x"), self.path)


@cache
def _application_info() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _LIST],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def routes() -> list[Route]:
    return [Route(path or "/", tuple(methods)) for path, methods, _ in _application_info()["routes"]]


def openapi() -> dict[str, Any]:
    return dict(_application_info()["openapi"])


def addresses(**values: str) -> list[str]:
    """Return one address per route, sub-application, and unlisted path."""
    return sorted({*(route.filled(**values) for route in routes()), *UNLISTED})


def pages() -> list[Route]:
    """Return the routes of pages, without API and files."""
    inside = ("/api", "/_nicegui", "/static")
    return [route for route in routes() if "GET" in route.methods and not route.path.startswith(inside)]


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes
    duplicate_headers: tuple[str, ...] = ()


@dataclass
class HttpClient:
    """A client that sends any number of requests over one connection."""

    address: str
    headers: dict[str, str] = field(default_factory=dict)
    _connection: http.client.HTTPConnection | None = None

    @property
    def host(self) -> str:
        return self.address.removeprefix("http://").partition("/")[0]

    @property
    def socket_address(self) -> tuple[str, int]:
        """Host and port to connect to. Names below .localhost, which only browsers resolve, are 127.0.0.1."""
        host, _, port = self.host.rpartition(":")
        return "127.0.0.1" if host.endswith(".localhost") else host, int(port)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
        """Send a request. ``_`` in header names stands for ``-``."""
        for patience in (1, 0):
            if self._connection is None:
                self._connection = http.client.HTTPConnection(*self.socket_address, timeout=30)
            try:
                given = {name.replace("_", "-"): value for name, value in headers.items()}
                base = self.address.removeprefix("http://").removeprefix(self.host)
                self._connection.request(method, base + path, body, {"Host": self.host, **self.headers, **given})
                got = self._connection.getresponse()
                received = [(name.lower(), value) for name, value in got.getheaders()]
                names = [name for name, _ in received]
                doubled = tuple(sorted({name for name in names if names.count(name) > 1} - {"set-cookie"}))
                return Response(got.status, dict(received), got.read(), doubled)
            except (http.client.HTTPException, ConnectionError):
                self.close()
                if not patience:
                    raise
        raise AssertionError

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def raw(self, data: bytes, seconds: float = 20) -> bytes:
        """Return the response to these bytes, until the server closes the connection."""
        with socket.create_connection(self.socket_address, timeout=seconds) as line:
            response = b""
            try:
                line.sendall(data)
                line.shutdown(socket.SHUT_WR)
                while chunk := line.recv(1 << 16):
                    response += chunk
            except OSError:
                pass
            return response


def free_port() -> str:
    """Return a free port for a server that must restart on the same port. Other tests use ports from 8521 on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def token_of(store: Path) -> str:
    return str(json.loads((store / "ui" / "server.json").read_text())["token"])


def secret_of(store: Path) -> str:
    """Return the secret in the address for browsers."""
    return str(json.loads((store / "ui" / "address.json").read_text())["secret"])


def api_client(server: Any, store: Path) -> HttpClient:
    """Return a client with this user's API token."""
    return HttpClient(server.numeric, {"Authorization": f"Bearer {token_of(store)}"})


def login_cookie(server: Any, link: str | None = None) -> str:
    """Log in with an unused link and return the session cookie."""
    link = link or server.link
    answer = HttpClient(server.address).request("GET", link.removeprefix(server.address))
    assert answer.status == 200, answer
    return answer.headers["set-cookie"].partition(";")[0]


def new_link(server: Any, store: Path) -> str:
    return str(json.loads(api_client(server, store).request("POST", "/api/link").body)["link"])
