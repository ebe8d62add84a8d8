"""Limits on connections: who may connect, how many connections are open, and which one is closed first."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
import uvicorn

from mlworkbench.ui.connection_limits import (
    Connection,
    Connections,
    Limits,
    Refused,
    limits_for,
    mark_authenticated,
)
from mlworkbench.ui.limited_server import ACCEPTED_AT_ONCE, LimitedServer, protocol_for
from mlworkbench.ui.peer_user import Owner, open_table
from mlworkbench.ui.server_log import Throttle

NOBODY = 65534
REQUEST = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"


# -- policy ----------------------------------------------------------------------------------------------


class FakeTransport:
    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.addresses: dict[str, Any] = {"peername": (host, port), "sockname": (host, 8521)}
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return self.addresses[name]

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


class FakeTable:
    """Socket table in which the user ID is the port divided by 100."""

    def __init__(self) -> None:
        self.lookups = 0

    def owner(self, local: Any, remote: Any) -> Owner | None:
        self.lookups += 1
        return Owner(local[1] // 100, 1) if local[1] < 9000 else None


def admit(connections: Connections, port: int, authenticated: bool = False) -> Connection:
    connection = connections.admit(FakeTransport(port))
    assert isinstance(connection, Connection)
    if authenticated:
        mark_authenticated({"state": {"mlw.connection": connection}})
    return connection


def are_closed(connections: list[Connection]) -> list[bool]:
    return [connection.transport.is_closing() for connection in connections]


def test_oldest_connection_of_a_user_is_closed_first():
    connections = Connections(Limits(10, 3), FakeTable())
    other = admit(connections, 200)
    mine = [admit(connections, 100 + number) for number in range(5)]
    assert are_closed(mine) == [True, True, False, False, False] and are_closed([other]) == [False]


def test_user_with_most_connections_loses_one_when_full():
    connections = Connections(Limits(6, 4), FakeTable())
    owner = admit(connections, 100)
    flood = [admit(connections, 200 + number) for number in range(4)]
    few = [admit(connections, 300 + number) for number in range(3)]
    assert are_closed([owner, *few]) == [False] * 4 and are_closed(flood) == [True, True, False, False]


def test_authenticated_connections_are_never_closed():
    connections = Connections(Limits(4, 2), FakeTable())
    kept = [admit(connections, 100 + number, authenticated=True) for number in range(3)]
    idle = [admit(connections, 110 + number) for number in range(3)]
    assert are_closed(kept) == [False] * 3 and are_closed(idle) == [True, True, False]
    mark_authenticated({"state": {"mlw.connection": idle[2]}})
    refused = connections.admit(FakeTransport(120))
    assert isinstance(refused, Refused) and refused.response.startswith(b"HTTP/1.1 503 ")
    kept[0].transport.abort()
    assert isinstance(connections.admit(FakeTransport(120)), Connection), "a connection has ended in the meantime"


def test_connections_are_counted_by_address_without_users():
    connections = Connections(Limits(10, 2))
    admitted = [connections.admit(FakeTransport(1, f"192.0.2.{number % 2}")) for number in range(6)]
    assert are_closed(admitted) == [True, True, False, False, False, False]


def test_unknown_user_is_refused():
    """A failed lookup never grants access."""
    user_id, limits = 70, Limits(9, 9)
    own_port = user_id * 100
    assert isinstance(Connections(limits, FakeTable(), user_id).admit(FakeTransport(own_port)), Connection)

    class Broken(FakeTable):
        def owner(self, local: Any, remote: Any) -> Owner | None:
            raise BlockingIOError

    for table, port in ((FakeTable(), 9001), (FakeTable(), own_port + 100), (Broken(), own_port), (None, own_port)):
        refused = Connections(limits, table, user_id).admit(FakeTransport(port))
        assert isinstance(refused, Refused) and refused.response.startswith(b"HTTP/1.1 403 ")
    closed = FakeTransport(own_port)
    closed.addresses["peername"] = None
    assert isinstance(Connections(limits, FakeTable(), user_id).admit(closed), Refused)


def test_connections_get_half_of_the_descriptors():
    assert limits_for(1024) == limits_for(10**6) == Limits(512, 256)
    assert limits_for(256) == Limits(128, 64)
    assert limits_for(1).total == 16


_RAISE = """
import resource
from mlworkbench.ui.connection_limits import raise_limits
print(raise_limits().total, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("before", "after"), [((64, 4096), "512 1024 4096"), ((64, 200), "100 200 200")])
def test_descriptor_limit_is_raised(before, after):
    """The soft limit is raised at most to 1024, which all child processes support."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < before[1]:
        pytest.skip("the limit is lower here")
    done = subprocess.run(
        [sys.executable, "-c", _RAISE],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, before),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == after


# -- a real server -------------------------------------------------------------------------------------------


async def _app(scope, receive, send):
    """Application in which requests to /in are authenticated."""
    if scope["path"] == "/in":
        mark_authenticated(scope)
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def run_server(
    registry: Connections, prepare: Callable[[tuple[str, int]], None] = lambda address: None
) -> Iterator[Any]:
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    prepare(listening.getsockname())
    config = uvicorn.Config(
        _app, http=protocol_for(registry), backlog=ACCEPTED_AT_ONCE, lifespan="off", log_config=None
    )
    server = LimitedServer(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        yield listening.getsockname()
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


def request(connection: socket.socket, path: bytes = b"/") -> bytes:
    connection.sendall(REQUEST % path)
    response = b""
    while not response.endswith(b"ok"):
        response += connection.recv(65536)
    return response


def wait_for_close(connection: socket.socket) -> bool:
    """Return whether the server closes the connection without sending data."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_received_request_is_read_despite_full_queue():
    """Before the server accepts the first connection, ten times as many wait as may be open."""
    with ExitStack() as stack:
        clients: list[socket.socket] = []

        def fill(address: tuple[str, int]) -> None:
            for _ in range(80):
                clients.append(stack.enter_context(socket.create_connection(address, timeout=20)))
                clients[-1].sendall(REQUEST % b"/")

        with run_server(Connections(Limits(8, 8)), fill):
            assert [client.recv(65536).split(b"\r\n")[0] for client in clients] == [b"HTTP/1.1 200 OK"] * 80


def test_flood_does_not_close_authenticated_connections():
    with ExitStack() as stack, run_server(Connections(Limits(8, 8))) as address:
        client = stack.enter_context(socket.create_connection(address, timeout=20))
        assert request(client, b"/in").startswith(b"HTTP/1.1 200 ")
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        web = stack.enter_context(socket.create_connection(address, timeout=20))
        web.sendall(b"GET /in HTTP/1.1\r\nHost: x\r\n" + upgrade + key + b"\r\n")
        assert web.recv(65536).startswith(b"HTTP/1.1 101 ")
        idle = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(40)]
        assert all(wait_for_close(connection) for connection in idle[:34])
        web.sendall(b"\x81\x82\0\0\0\0hi")
        assert web.recv(65536) == b"\x81\x02hi"
        assert request(client, b"/in").startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(address, timeout=20) as late:
            assert request(late).startswith(b"HTTP/1.1 200 ")


def test_user_is_looked_up_once_per_connection():
    """One lookup is enough for all requests of a connection. A new connection from the same port needs another."""
    table = FakeTable()
    table.owner = lambda local, remote: setattr(table, "lookups", table.lookups + 1) or Owner(os.getuid(), 1)
    with run_server(Connections(Limits(8, 8), table, only_user=os.getuid())) as address:
        port = 0
        for expected in (1, 2):
            with socket.socket() as client:
                client.settimeout(20)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                client.bind(("127.0.0.1", port))
                client.connect(address)
                port = client.getsockname()[1]
                for _ in range(3):
                    assert request(client).startswith(b"HTTP/1.1 200 ")
                assert table.lookups == expected
                client.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
                while client.recv(65536):
                    pass


_AS_OTHER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as client:
    client.sendall(b"GET /in HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print(client.recv(65536).split(b"\\r\\n")[0].decode())
"""


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="only root can become another user")
def test_root_may_connect_to_server_of_another_user():
    """Root and the server's user may connect; any other user may not."""
    with closing(open_table(required=True)) as table, run_server(Connections(Limits(8, 8), table, NOBODY)) as address:
        for user_id, status in ((0, "200"), (NOBODY, "200"), (NOBODY - 1, "403")):
            done = subprocess.run(
                ["/usr/bin/python3", "-I", "-c", _AS_OTHER, str(address[1])],
                user=user_id, group=user_id, extra_groups=[], cwd="/", capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert done.stdout.startswith(f"HTTP/1.1 {status} "), done


# -- log -------------------------------------------------------------------------------------------------


def test_similar_log_messages_are_throttled():
    now = 0.0
    throttle = Throttle(lambda: now)

    def filter_message(message: str, *values: object) -> str | None:
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, message, values, None)
        return record.getMessage() if throttle.filter(record) else None

    messages = [filter_message(f"socket.accept() out of system resource\nsocket: {number}") for number in range(1000)]
    assert sum(message is not None for message in messages) == 5
    assert filter_message("another kind") is not None
    now = 61.0
    assert "995 similar messages" in str(filter_message("socket.accept() out of system resource\nsocket: x"))
    assert [filter_message("closed %s", number) is not None for number in range(7)] == [True] * 5 + [False] * 2
