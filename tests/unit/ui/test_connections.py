"""Who may open a connection to the server, how many, and which one gives way."""

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

from mlworkbench.ui.connections import (
    Connection,
    Connections,
    Limits,
    Refused,
    limits_of,
    mark_authenticated,
)
from mlworkbench.ui.limited_server import ACCEPTED_AT_ONCE, LimitedServer, protocol_for
from mlworkbench.ui.peer import Owner, open_table
from mlworkbench.ui.server_log import Throttle

NOBODY = 65534
REQUEST = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"


# -- the policy ----------------------------------------------------------------------------------------------


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
    """The hundreds of a port are the user."""

    def __init__(self) -> None:
        self.lookups = 0

    def owner(self, local: Any, remote: Any) -> Owner | None:
        self.lookups += 1
        return Owner(local[1] // 100, 1) if local[1] < 9000 else None


def admitted(connections: Connections, port: int, authenticated: bool = False) -> Connection:
    found = connections.admit(FakeTransport(port))
    assert isinstance(found, Connection)
    if authenticated:
        mark_authenticated({"state": {"mlw.connection": found}})
    return found


def are_closed(found: list[Connection]) -> list[bool]:
    return [one.transport.is_closing() for one in found]


def test_the_oldest_of_a_user_gives_way_to_their_next():
    connections = Connections(Limits(10, 3), FakeTable())
    other = admitted(connections, 200)
    mine = [admitted(connections, 100 + number) for number in range(5)]
    assert are_closed(mine) == [True, True, False, False, False] and are_closed([other]) == [False]


def test_who_has_the_most_gives_way_when_all_are_used():
    connections = Connections(Limits(6, 4), FakeTable())
    owner = admitted(connections, 100)
    flood = [admitted(connections, 200 + number) for number in range(4)]
    few = [admitted(connections, 300 + number) for number in range(3)]
    assert are_closed([owner, *few]) == [False] * 4 and are_closed(flood) == [True, True, False, False]


def test_who_has_logged_in_never_gives_way():
    connections = Connections(Limits(4, 2), FakeTable())
    kept = [admitted(connections, 100 + number, authenticated=True) for number in range(3)]
    idle = [admitted(connections, 110 + number) for number in range(3)]
    assert are_closed(kept) == [False] * 3 and are_closed(idle) == [True, True, False]
    mark_authenticated({"state": {"mlw.connection": idle[2]}})
    refused = connections.admit(FakeTransport(120))
    assert isinstance(refused, Refused) and refused.response.startswith(b"HTTP/1.1 503 ")
    kept[0].transport.abort()
    assert isinstance(connections.admit(FakeTransport(120)), Connection), "one has ended meanwhile"


def test_without_users_machines_are_told_apart():
    connections = Connections(Limits(10, 2))
    found = [connections.admit(FakeTransport(1, f"192.0.2.{number % 2}")) for number in range(6)]
    assert are_closed(found) == [True, True, False, False, False, False]


def test_an_unknown_user_is_refused():
    """Also one who cannot be looked up: nobody comes in by an error."""
    user_id, limits = 70, Limits(9, 9)
    own = user_id * 100
    assert isinstance(Connections(limits, FakeTable(), user_id).admit(FakeTransport(own)), Connection)

    class Broken(FakeTable):
        def owner(self, local: Any, remote: Any) -> Owner | None:
            raise BlockingIOError

    for table, port in ((FakeTable(), 9001), (FakeTable(), own + 100), (Broken(), own), (None, own)):
        found = Connections(limits, table, user_id).admit(FakeTransport(port))
        assert isinstance(found, Refused) and found.response.startswith(b"HTTP/1.1 403 ")
    gone = FakeTransport(own)
    gone.addresses["peername"] = None
    assert isinstance(Connections(limits, FakeTable(), user_id).admit(gone), Refused)


def test_half_of_the_descriptors_are_for_others():
    assert limits_of(1024) == limits_of(10**6) == Limits(512, 256)
    assert limits_of(256) == Limits(128, 64)
    assert limits_of(1).total == 16


_RAISE = """
import resource
from mlworkbench.ui.connections import raise_limits
print(raise_limits().total, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("before", "after"), [((64, 4096), "512 1024 4096"), ((64, 200), "100 200 200")])
def test_the_limit_is_raised(before, after):
    """As far as programs that we start can bear it."""
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
    """Whoever asks for /in has logged in."""
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
def serving(registry: Connections, before: Callable[[tuple[str, int]], None] = lambda place: None) -> Iterator[Any]:
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    before(listening.getsockname())
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


def ask(line: socket.socket, path: bytes = b"/") -> bytes:
    line.sendall(REQUEST % path)
    found = b""
    while not found.endswith(b"ok"):
        found += line.recv(65536)
    return found


def ended(line: socket.socket) -> bool:
    """Waits for the end."""
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_request_that_has_arrived_is_read_however_many_wait():
    """All of them are there before the first is accepted, ten times as many as may be open."""
    with ExitStack() as stack:
        lines: list[socket.socket] = []

        def fill(place: tuple[str, int]) -> None:
            for _ in range(80):
                lines.append(stack.enter_context(socket.create_connection(place, timeout=20)))
                lines[-1].sendall(REQUEST % b"/")

        with serving(Connections(Limits(8, 8)), fill):
            assert [line.recv(65536).split(b"\r\n")[0] for line in lines] == [b"HTTP/1.1 200 OK"] * 80


def test_a_flood_ends_no_connection_that_has_logged_in():
    with ExitStack() as stack, serving(Connections(Limits(8, 8))) as place:
        line = stack.enter_context(socket.create_connection(place, timeout=20))
        assert ask(line, b"/in").startswith(b"HTTP/1.1 200 ")
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        web = stack.enter_context(socket.create_connection(place, timeout=20))
        web.sendall(b"GET /in HTTP/1.1\r\nHost: x\r\n" + upgrade + key + b"\r\n")
        assert web.recv(65536).startswith(b"HTTP/1.1 101 ")
        idle = [stack.enter_context(socket.create_connection(place, timeout=20)) for _ in range(40)]
        assert all(ended(one) for one in idle[:34])
        web.sendall(b"\x81\x82\0\0\0\0hi")
        assert web.recv(65536) == b"\x81\x02hi"
        assert ask(line, b"/in").startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(place, timeout=20) as late:
            assert ask(late).startswith(b"HTTP/1.1 200 ")


def test_a_user_is_looked_up_once_per_connection():
    """However many requests there are; and again for a new connection from the same port."""
    table = FakeTable()
    table.owner = lambda local, remote: setattr(table, "lookups", table.lookups + 1) or Owner(os.getuid(), 1)
    with serving(Connections(Limits(8, 8), table, only_user=os.getuid())) as place:
        port = 0
        for expected in (1, 2):
            with socket.socket() as line:
                line.settimeout(20)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                line.bind(("127.0.0.1", port))
                line.connect(place)
                port = line.getsockname()[1]
                for _ in range(3):
                    assert ask(line).startswith(b"HTTP/1.1 200 ")
                assert table.lookups == expected
                line.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
                while line.recv(65536):
                    pass


_AS_OTHER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as line:
    line.sendall(b"GET /in HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print(line.recv(65536).split(b"\\r\\n")[0].decode())
"""


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="only root can become another user")
def test_root_may_connect_to_the_server_of_another_user():
    """And a third user may not."""
    with closing(open_table(required=True)) as table, serving(Connections(Limits(8, 8), table, NOBODY)) as place:
        for user_id, status in ((0, "200"), (NOBODY, "200"), (NOBODY - 1, "403")):
            done = subprocess.run(
                ["/usr/bin/python3", "-I", "-c", _AS_OTHER, str(place[1])],
                user=user_id, group=user_id, extra_groups=[], cwd="/", capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert done.stdout.startswith(f"HTTP/1.1 {status} "), done


# -- its log -------------------------------------------------------------------------------------------------


def test_messages_of_a_kind_are_few():
    now = 0.0
    throttle = Throttle(lambda: now)

    def through(message: str, *values: object) -> str | None:
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, message, values, None)
        return record.getMessage() if throttle.filter(record) else None

    told = [through(f"socket.accept() out of system resource\nsocket: {number}") for number in range(1000)]
    assert sum(one is not None for one in told) == 5
    assert through("another kind") is not None
    now = 61.0
    assert "995 similar messages" in str(through("socket.accept() out of system resource\nsocket: x"))
    assert [through("closed %s", number) is not None for number in range(7)] == [True] * 5 + [False] * 2
