"""Checks of raw requests before authentication, as pure functions tested with a table of cases.

Authentication is separate (see ``sessions``). These checks cover origin and form: unknown host
names (DNS rebinding), other sites and other ports of this machine (CSRF), and ambiguous paths.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LOGIN, LOGOUT = "/login", "/logout"
_MAX_PATH, _MAX_QUERY = 4096, 16384  # maximum bytes; a comparison URL may contain hundreds of runs
_SAFE_METHODS = ("GET", "HEAD")
_UNSAFE_METHODS = ("POST", "PUT", "PATCH", "DELETE")
_OWN_SITES = ("same-origin", "none")  # Sec-Fetch-Site values: a page of this server, or the address bar
_SINGLE_HEADERS = ("host", "origin", "cookie", "authorization", "content-length", "sec-fetch-site")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
# Encoded separators or dots, double slashes, and backslashes: other parsers could read a different path.
_AMBIGUOUS_PATH = re.compile(
    rb"//|\\|[^\x21-\x7e]|%(?:2[ef]|5c|[01][0-9a-f]|7f|(?![0-9a-f]{2}))|/\.{1,2}(?:/|\Z)", re.IGNORECASE
)


@dataclass(frozen=True)
class AccessPolicy:
    """Accepted host names with ports, such as ``127.0.0.1:8521``, and the secret address."""

    hosts: frozenset[str]
    cookie: str  # cookie name; unique per port, because browsers send cookies to all ports of a host
    all_interfaces: bool = False  # the server listens on all interfaces, whose names cannot be listed
    secret: str = ""  # secret of the browser address (see cookie_isolation.py); sessions are valid only there

    @property
    def label(self) -> str:
        """The secret host name."""
        return f"{self.secret}.localhost"

    @property
    def prefix(self) -> str:
        """The secret path."""
        return f"/{self.secret}"

    def accepts_host(self, request: Request) -> bool:
        host = request.host
        if host in self.hosts or (self.all_interfaces and host == request.server != ""):
            return True
        # Behind `ssh -L`, the port may differ. This is safe: a DNS rebinding attacker does not have the secret.
        match = _HOST.fullmatch(host)
        names = {self.label, *(host.rpartition(":")[0] for host in self.hosts)}
        return request.private and match is not None and match[1] in names


@dataclass(frozen=True)
class RequestRefusal:
    """Response to a request that never reaches the application."""

    status: int
    message: str


@dataclass(frozen=True)
class Request:
    """Parts of a request that the checks need."""

    method: str  # WEBSOCKET for a WebSocket
    path: bytes  # raw, not decoded
    query: bytes
    headers: Mapping[str, str]
    duplicates: tuple[str, ...] = ()  # headers that must be unique but are not
    client: str | None = None
    server: str = ""  # server address and port that the client connected to
    base: str = ""  # the secret path if the request used it; ``path`` does not include it
    private: bool = False  # the request used the secret address

    @staticmethod
    def from_scope(scope: Mapping[str, Any]) -> Request:
        headers: dict[str, str] = {}
        duplicates = []
        for raw, value in scope["headers"]:
            name = raw.decode("latin-1").lower()
            if name in headers and name in _SINGLE_HEADERS:
                duplicates.append(name)
            headers[name] = value.decode("latin-1")
        path = scope.get("raw_path") or scope["path"].encode("utf-8")
        method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        client = scope.get("client")
        query, server = scope.get("query_string", b""), scope.get("server")
        return Request(
            method,
            path,
            query,
            headers,
            tuple(duplicates),
            client[0] if client else None,
            _host_and_port(*server) if server else "",
        )

    @property
    def host(self) -> str:
        return self.headers.get("host", "").lower()

    @property
    def length(self) -> int:
        """The declared length of the body."""
        text = self.headers.get("content-length", "0")
        return int(text) if text.isascii() and text.isdigit() else 1 << 62

    @property
    def is_navigation(self) -> bool:
        """Whether a browser is opening the URL as a page."""
        return self.headers.get("sec-fetch-dest") == "document"

    @property
    def bearer(self) -> str | None:
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token else None


def _host_and_port(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def strip_secret(request: Request, policy: AccessPolicy) -> Request:
    """Return the request with the secret removed from its path.

    Set ``private`` if the request used the secret address.
    """
    if not policy.secret:
        return request
    match = _HOST.fullmatch(request.host)
    if match is not None and hmac.compare_digest(match[1].encode(), policy.label.encode()):
        return replace(request, private=True)
    first, slash, rest = request.path[1:].partition(b"/")
    if slash and request.path[:1] == b"/" and hmac.compare_digest(first, policy.secret.encode()):
        return replace(request, path=b"/" + rest, base=policy.prefix, private=True)
    return request


def check_request(request: Request, policy: AccessPolicy) -> RequestRefusal | None:
    """Return the reason for refusing a request, or None if it may proceed to authentication."""
    if request.duplicates:
        return RequestRefusal(400, f"duplicate header {request.duplicates[0]}")
    if not policy.accepts_host(request):
        return RequestRefusal(421, "unknown host name")
    if len(request.path) > _MAX_PATH or len(request.query) > _MAX_QUERY:
        return RequestRefusal(414, "URL too long")
    if not request.path.startswith(b"/") or _AMBIGUOUS_PATH.search(request.path):
        return RequestRefusal(400, "invalid URL")
    if request.method not in (*_SAFE_METHODS, *_UNSAFE_METHODS, "WEBSOCKET"):
        return RequestRefusal(403, f"method {request.method} is not allowed")
    return _check_cross_site(request)


def _check_cross_site(request: Request) -> RequestRefusal | None:
    """Refuse requests that a browser sends on behalf of other sites or other ports of this machine."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    refusal = RequestRefusal(403, "cross-site request refused")
    if origin is not None and origin.lower() != f"http://{request.host}":
        return refusal
    if site is not None and site not in _OWN_SITES:
        # Following a link to our pages is harmless: it changes nothing, and the pages cannot be framed.
        is_page = request.method == "GET" and request.headers.get("sec-fetch-dest") == "document"
        return None if is_page and request.headers.get("sec-fetch-mode") == "navigate" else refusal
    if request.method in (*_UNSAFE_METHODS, "WEBSOCKET") and request.bearer is None and origin is None:
        return RequestRefusal(403, "a request that changes state needs an Origin header or a token")
    return None


def is_login(request: Request) -> bool:
    return request.path == LOGIN.encode()


def is_logout(request: Request) -> bool:
    return request.path == LOGOUT.encode() and request.method == "POST"


def safe_next(text: str | None) -> str:
    """Return the page to open after login, which is never on another site."""
    if not text or not re.fullmatch(r"/(?![/\\])[\x21-\x7e]{0,2000}", text) or "\\" in text:
        return "/"
    return text
