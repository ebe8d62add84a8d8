"""Owners that the kernel reports for the other end of a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mlworkbench.errors import UsageError
from mlworkbench.ui import peer_user
from mlworkbench.ui.peer_user import Owner, SocketTable, endpoint

NOBODY = 65534

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


@pytest.fixture
def table() -> Iterator[SocketTable]:
    opened = SocketTable()
    yield opened
    opened.close()


def owner_of_peer(table: SocketTable, accepted: socket.socket) -> Owner | None:
    return table.owner(endpoint(accepted.getpeername()[:2]), endpoint(accepted.getsockname()[:2]))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_own_connection(table, host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            assert owner_of_peer(table, accepted) == Owner(os.getuid(), os.fstat(client.fileno()).st_ino)


@pytest.mark.parametrize("dual", [False, True])
def test_ipv4_mapped_addresses(table, dual):
    """The client uses an IPv6 socket. The server uses an IPv4 or an IPv6 socket."""
    with socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as server, socket.socket(socket.AF_INET6) as client:
        if dual:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::" if dual else "127.0.0.1", 0))
        server.listen()
        client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        accepted, _ = server.accept()
        with accepted:
            assert owner_of_peer(table, accepted) == Owner(os.getuid(), os.fstat(client.fileno()).st_ino)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_connection_of_another_user(table, host):
    listening = "::1" if host == "::1" else "127.0.0.1"
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    script = "import socket, sys; held = socket.create_connection((sys.argv[1], int(sys.argv[2]))); sys.stdin.read()"
    with socket.create_server((listening, 0), family=family) as server:
        client = subprocess.Popen(
            ["/usr/bin/python3", "-I", "-c", script, host, str(server.getsockname()[1])],
            user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", stdin=subprocess.PIPE,
        )  # fmt: skip
        accepted, _ = server.accept()
        with accepted:
            owner = owner_of_peer(table, accepted)
            assert owner is not None and owner.uid == NOBODY and owner.inode != 0
            client.communicate()
            after = owner_of_peer(table, accepted)  # no process holds the socket; some kernels then report root
            assert after is None or not after.may_connect(0)


def test_closed_and_half_closed(table):
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"request")
            client.shutdown(socket.SHUT_WR)
            owner = owner_of_peer(table, accepted)
            assert owner is not None and owner.may_connect(os.getuid()), "it still waits for the response"
            client.close()
            owner = owner_of_peer(table, accepted)
            assert owner is None or not owner.may_connect(os.getuid())


def test_listening_socket_is_not_a_peer(table):
    """If no connection matches, the kernel returns a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert table.owner(endpoint(server.getsockname()), endpoint(("127.0.0.1", 9))) is None
    assert table.owner(endpoint(("127.0.0.1", 1)), endpoint(("127.0.0.1", 2))) is None
    assert table.owner(endpoint(("127.0.0.1", 1)), endpoint(("::1", 2))) is None


def test_who_may_connect():
    assert Owner(1000, 5).may_connect(1000) and Owner(0, 5).may_connect(1000) and Owner(0, 5).may_connect(0)
    assert not Owner(1001, 5).may_connect(1000) and not Owner(1000, 5).may_connect(0)
    assert not Owner(0, 0).may_connect(1000) and not Owner(1000, 0).may_connect(1000)


def test_kernel_without_sock_diag(monkeypatch):
    """Without sock_diag, users cannot be distinguished, so the server does not start."""
    monkeypatch.setattr(peer_user, "_NETLINK_SOCK_DIAG", 255)
    with pytest.raises(UsageError) as caught:
        peer_user.open_table(required=True)
    assert "--any-local-user" in str(caught.value.hint)
    assert peer_user.open_table(required=False) is None
    monkeypatch.undo()
    monkeypatch.setattr(SocketTable, "owner", lambda *_: Owner(os.getuid() + 1, 5))
    with pytest.raises(UsageError):
        peer_user.open_table(required=True)
