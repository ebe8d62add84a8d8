"""Who connects and never says what they want is sent away, and so is who says too much."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from mlworkbench.ui import patience


async def _app(scope, receive, send):
    assert scope["type"] == "http"
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"%02d" % len(body)})


@pytest.fixture
def place(monkeypatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(patience, "SECONDS", 0.5)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(_app, http=patience.Patient, lifespan="off", log_config=None))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    yield listening.getsockname()
    server.should_exit = True
    thread.join(20)
    listening.close()


def heard(line: socket.socket) -> bytes:
    """Until they hang up."""
    found = b""
    try:
        while data := line.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHo", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"])
def test_who_never_ends(place, begun):
    """Also within the second request of a connection."""
    with socket.create_connection(place, timeout=20) as line:
        line.sendall(begun)
        assert heard(line).count(b"200 OK") == begun.count(b"\r\n\r\n")


def test_a_slow_body_is_another_matter(place):
    """The application has the request then, and knows who asks."""
    with socket.create_connection(place, timeout=20) as line, socket.create_connection(place, timeout=20) as other:
        line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\n")
        assert heard(other) == b"", "the other one has waited for its end"
        line.sendall(b"abc")
        assert heard(line).endswith(b"03")


def test_who_says_too_much(place):
    with socket.create_connection(place, timeout=20) as line:
        try:
            line.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10**6)
        except ConnectionError:
            pass
        assert heard(line) == b""


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def send_until_they_hang_up(line: socket.socket, parts: tuple[bytes, ...], times: int, pause: float = 0.0) -> None:
    for part in parts * times:
        line.sendall(part)
        threading.Event().wait(pause)


@pytest.mark.parametrize("endless", [b"a: b\r\n", b"a"], ids=["many", "one"])
def test_trailers_without_end(place, endless):
    """uvicorn would keep them all."""
    with socket.create_connection(place, timeout=20) as line:
        line.sendall(CHUNKED + b"3\r\nabc\r\n0\r\n")
        with pytest.raises(ConnectionError):
            send_until_they_hang_up(line, (endless * 10_000,), 1000)


@pytest.mark.parametrize("parts", [(b"1\r\nx\r\n",), (b"1\r\n", b"x\r\n")])
def test_a_body_that_never_ends_after_its_answer(place, parts):
    """However steadily it comes."""
    with socket.create_connection(place, timeout=20) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(CHUNKED + b"1\r\nx\r\n")
        with pytest.raises(ConnectionError):
            send_until_they_hang_up(line, parts, 200, 0.05)


def test_chunks_and_small_trailers_are_fine(place):
    with socket.create_connection(place, timeout=20) as line:
        line.sendall(CHUNKED.replace(b"Host", b"Connection: close\r\nHost") + b"3\r\nabc\r\n0\r\na: b\r\n\r\n")
        assert heard(line).endswith(b"03")


def test_requests_that_wait_for_no_answer(place):
    """One may wait, for its client can be quicker than the end of the answer before; the others are not kept."""
    with socket.create_connection(place, timeout=20) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
        assert heard(line).count(b"200 OK") <= 2
