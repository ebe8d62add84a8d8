"""Connections that send too slowly or too much are closed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from mlworkbench.ui import http_limits


async def _app(scope, receive, send):
    assert scope["type"] == "http"
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"%02d" % len(body)})


@pytest.fixture
def address(monkeypatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(http_limits, "TIMEOUT", 0.5)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(_app, http=http_limits.BoundedHttpProtocol, lifespan="off", log_config=None))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    yield listening.getsockname()
    server.should_exit = True
    thread.join(20)
    listening.close()


def read_all(client: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    received = b""
    try:
        while data := client.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHo", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"])
def test_incomplete_request_is_closed(address, data):
    """The incomplete request may be the first or the second of a connection."""
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(data)
        assert read_all(client).count(b"200 OK") == data.count(b"\r\n\r\n")


def test_slow_body_is_allowed(address):
    """The time limit applies only to headers, because a request is authenticated before its body arrives."""
    with (
        socket.create_connection(address, timeout=20) as client,
        socket.create_connection(address, timeout=20) as other,
    ):
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\n")
        assert read_all(other) == b"", "the other one has waited for its end"
        client.sendall(b"abc")
        assert read_all(client).endswith(b"03")


def test_oversized_headers_are_closed(address):
    with socket.create_connection(address, timeout=20) as client:
        try:
            client.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10**6)
        except ConnectionError:
            pass
        assert read_all(client) == b""


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def send_repeatedly(client: socket.socket, parts: tuple[bytes, ...], times: int, pause: float = 0.0) -> None:
    for part in parts * times:
        client.sendall(part)
        threading.Event().wait(pause)


@pytest.mark.parametrize("endless", [b"a: b\r\n", b"a"], ids=["many", "one"])
def test_endless_trailers_are_closed(address, endless):
    """Without a limit, uvicorn would buffer all trailers."""
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(CHUNKED + b"3\r\nabc\r\n0\r\n")
        with pytest.raises(ConnectionError):
            send_repeatedly(client, (endless * 10_000,), 1000)


@pytest.mark.parametrize("parts", [(b"1\r\nx\r\n",), (b"1\r\n", b"x\r\n")])
def test_endless_body_after_response_is_closed(address, parts):
    """The connection is closed even if data keeps arriving."""
    with socket.create_connection(address, timeout=20) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(CHUNKED + b"1\r\nx\r\n")
        with pytest.raises(ConnectionError):
            send_repeatedly(client, parts, 200, 0.05)


def test_chunks_and_small_trailers_are_accepted(address):
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(CHUNKED.replace(b"Host", b"Connection: close\r\nHost") + b"3\r\nabc\r\n0\r\na: b\r\n\r\n")
        assert read_all(client).endswith(b"03")


def test_pipelined_requests_are_limited(address):
    """A client may send one request before it has received the previous response. Further requests are dropped."""
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
        assert read_all(client).count(b"200 OK") <= 2
