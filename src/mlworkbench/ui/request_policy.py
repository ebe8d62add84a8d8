"""Whether a request may come in at all, from the raw request alone. Pure: a table of cases tests it.

Who asks is another question (``sessions``). This is about where the request comes from and what it looks like: names
that are not ours (DNS rebinding), other sites and other ports of this machine (CSRF), paths that try to be another.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LOGIN, LOGOUT = "/login", "/logout"
_LONGEST, _LONGEST_QUERY = 4096, 16384  # bytes; hundreds of runs may stand in the address of a comparison
_READING = ("GET", "HEAD")
_CHANGING = ("POST", "PUT", "PATCH", "DELETE")
_OURS = ("same-origin", "none")  # of Sec-Fetch-Site: our own page, or the user's hand
_ONCE = ("host", "origin", "cookie", "authorization", "content-length", "sec-fetch-site")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
# An encoded separator or dot, a doubled slash, a backslash: a later reader could take the path for another one.
_ODD_PATH = re.compile(
    rb"//|\\|[^\x21-\x7e]|%(?:2[ef]|5c|[01][0-9a-f]|7f|(?![0-9a-f]{2}))|/\.{1,2}(?:/|\Z)", re.IGNORECASE
)


@dataclass(frozen=True)
class Door:
    """The names under which this server may be spoken to, with the port: ``127.0.0.1:8521``."""

    hosts: frozenset[str]
    cookie: str  # its name: browsers send one to all ports of a host
    anywhere: bool = False  # it listens on all addresses of this machine, whose names nobody can list
    secret: str = ""  # of the address for browsers, see address.py; sessions count there only

    @property
    def label(self) -> str:
        """The secret host name."""
        return f"{self.secret}.localhost"

    @property
    def prefix(self) -> str:
        """The secret path."""
        return f"/{self.secret}"

    def answers_to(self, request: Request) -> bool:
        host = request.host
        if host in self.hosts or (self.anywhere and host == request.server != ""):
            return True
        # Behind `ssh -L` the port has another number. Who knows the secret is no site that rebinds a name.
        name = _HOST.fullmatch(host)
        known = {self.label, *(one.rpartition(":")[0] for one in self.hosts)}
        return request.private and name is not None and name[1] in known


@dataclass(frozen=True)
class Refusal:
    """An answer that the application never hears of."""

    status: int
    words: str


@dataclass(frozen=True)
class Request:
    """What the gate looks at."""

    method: str  # WEBSOCKET for one
    path: bytes  # as it came, undecoded
    query: bytes
    headers: Mapping[str, str]
    doubled: tuple[str, ...] = ()  # headers that came more than once and must not
    client: str | None = None
    server: str = ""  # the address of ours by which it came, with the port
    base: str = ""  # the secret path, if it came below that; ``path`` is without it
    private: bool = False  # it came to the secret address

    @staticmethod
    def of(scope: Mapping[str, Any]) -> Request:
        found: dict[str, str] = {}
        doubled = []
        for raw, value in scope["headers"]:
            name = raw.decode("latin-1").lower()
            if name in found and name in _ONCE:
                doubled.append(name)
            found[name] = value.decode("latin-1")
        path = scope.get("raw_path") or scope["path"].encode("utf-8")
        method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        client = scope.get("client")
        query, server = scope.get("query_string", b""), scope.get("server")
        return Request(
            method, path, query, found, tuple(doubled), client[0] if client else None, _place(*server) if server else ""
        )

    @property
    def host(self) -> str:
        return self.headers.get("host", "").lower()

    @property
    def length(self) -> int:
        """Of its body, as it says."""
        told = self.headers.get("content-length", "0")
        return int(told) if told.isascii() and told.isdigit() else 1 << 62

    @property
    def by_hand(self) -> bool:
        """A person has opened the address in a browser."""
        return self.headers.get("sec-fetch-dest") == "document"

    @property
    def bearer(self) -> str | None:
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token else None


def _place(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def locate(request: Request, door: Door) -> Request:
    """The request, with whether it came to the secret address, and its path without the secret."""
    if not door.secret:
        return request
    name = _HOST.fullmatch(request.host)
    if name is not None and hmac.compare_digest(name[1].encode(), door.label.encode()):
        return replace(request, private=True)
    first, slash, rest = request.path[1:].partition(b"/")
    if slash and request.path[:1] == b"/" and hmac.compare_digest(first, door.secret.encode()):
        return replace(request, path=b"/" + rest, base=door.prefix, private=True)
    return request


def judge(request: Request, door: Door) -> Refusal | None:
    """None: it may come in, if it can show who it is."""
    if request.doubled:
        return Refusal(400, f"duplicate header {request.doubled[0]}")
    if not door.answers_to(request):
        return Refusal(421, "unknown host name")
    if len(request.path) > _LONGEST or len(request.query) > _LONGEST_QUERY:
        return Refusal(414, "URL too long")
    if not request.path.startswith(b"/") or _ODD_PATH.search(request.path):
        return Refusal(400, "invalid URL")
    if request.method not in (*_READING, *_CHANGING, "WEBSOCKET"):
        return Refusal(403, f"method {request.method} is not allowed")
    return _foreign(request)


def _foreign(request: Request) -> Refusal | None:
    """Whether another site, or another port of this machine, makes the browser ask."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    other = Refusal(403, "cross-site request refused")
    if origin is not None and origin.lower() != f"http://{request.host}":
        return other
    if site is not None and site not in _OURS:
        # Following a link to a page of ours is harmless: it changes nothing, and no frame may hold it.
        follows = request.method == "GET" and request.headers.get("sec-fetch-dest") == "document"
        return None if follows and request.headers.get("sec-fetch-mode") == "navigate" else other
    if request.method in (*_CHANGING, "WEBSOCKET") and request.bearer is None and origin is None:
        return Refusal(403, "a request that changes state needs an Origin header or a token")
    return None


def wants_login(request: Request) -> bool:
    return request.path == LOGIN.encode()


def wants_logout(request: Request) -> bool:
    return request.path == LOGOUT.encode() and request.method == "POST"


def safe_next(text: str | None) -> str:
    """Where to go after the login: a page of ours, never another site."""
    if not text or not re.fullmatch(r"/(?![/\\])[\x21-\x7e]{0,2000}", text) or "\\" in text:
        return "/"
    return text
