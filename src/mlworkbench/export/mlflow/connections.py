"""Kept-alive HTTP connections to one server, which several threads can use at the same time.

Redirects are not followed. Certificates are verified as the TLS context says. Proxies come from the environment.
"""

from __future__ import annotations

import base64
import http.client
import select
import socket
import ssl
import threading
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

_MAX_RESPONSE = 256 * 1024 * 1024  # maximum response size in bytes
_BLOCK = 64 * 1024


class Body(Protocol):
    """A request body that is read while it is sent."""

    def read(self, count: int = -1, /) -> bytes: ...


@dataclass(frozen=True)
class Response:
    """A complete response. ``data`` is None if it exceeds the size limit."""

    status: int
    location: str
    data: bytes | None


class ConnectError(Exception):
    """No connection could be made; ``reason`` is the error."""

    def __init__(self, reason: OSError | http.client.HTTPException) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Connections:
    """A pool of connections. A request takes an idle connection, or makes one."""

    def __init__(self, uri: str, context: ssl.SSLContext, timeout: float) -> None:
        self._server = urlsplit(uri)
        self._context = context
        self._timeout = timeout
        self._proxy = _find_proxy(self._server)
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self.is_aborted = False
        self._lock = threading.Lock()

    def request(
        self, method: str, path: str, body: bytes | Body | None, headers: Mapping[str, str], *, reuse: bool = True
    ) -> Response:
        """Send a request.

        A server may close an idle connection at any time. ``reuse=False`` makes a new connection, for requests that
        must not be repeated. Raise ConnectError if the server cannot be reached, and OSError or HTTPException if the
        connection fails later.
        """
        connection = (self._take() if reuse else None) or self._connect()
        with self._lock:
            self._busy.add(connection)
        try:
            connection.request(method, self._target(path), body, {**headers, **self._proxy_headers()})
            response = connection.getresponse()
            data = response.read(_MAX_RESPONSE + 1)
        except BaseException:
            self._release(connection, keep=False)
            raise
        is_complete = len(data) <= _MAX_RESPONSE
        self._release(connection, keep=is_complete and not response.will_close)
        location = response.headers.get("Location") or "elsewhere"
        return Response(response.status, location, data if is_complete else None)

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def abort(self) -> None:
        """Make all requests fail, also those of other threads."""
        self.is_aborted = True
        with self._lock:
            for connection in (*self._busy, *self._idle):
                if connection.sock is not None:
                    with suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)

    def _release(self, connection: http.client.HTTPConnection, *, keep: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def _take(self) -> http.client.HTTPConnection | None:
        """Return an idle connection that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            with suppress(OSError, ValueError):
                # An idle connection is readable only if the server has closed it.
                if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                    return connection
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self.is_aborted:
            raise ConnectError(ConnectionAbortedError("the export was stopped"))
        address = self._proxy or self._server
        host = str(address.hostname)
        connection: http.client.HTTPConnection
        if self._server.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, address.port, timeout=self._timeout, context=self._context, blocksize=_BLOCK
            )
            if self._proxy is not None:
                headers = _authorization(self._proxy)
                connection.set_tunnel(str(self._server.hostname), self._server.port or 443, headers)
        else:
            connection = http.client.HTTPConnection(host, address.port, timeout=self._timeout, blocksize=_BLOCK)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectError(error) from None
        return connection

    def _target(self, path: str) -> str:
        """Return what the request line contains: a proxy for plain HTTP needs the full URL."""
        if self._proxy is None or self._server.scheme == "https":
            return path
        return f"http://{self._server.netloc}{path}"

    def _proxy_headers(self) -> dict[str, str]:
        return {} if self._proxy is None or self._server.scheme == "https" else _authorization(self._proxy)


def _find_proxy(server: SplitResult) -> SplitResult | None:
    address = urllib.request.getproxies().get(server.scheme)
    if not address or urllib.request.proxy_bypass(server.netloc):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    return proxy if proxy.hostname else None


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": "Basic " + base64.b64encode(login).decode()}
