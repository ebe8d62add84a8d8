"""Open connections of the server: admission, limits, and which connection is closed to make room.

Every connection uses a file descriptor, and so do log files, commands, and terminals. Connections
get at most half of the descriptors. When these are used up, the server closes the oldest
unauthenticated connection of the peer that has the most of them. If the request of a new connection
has arrived, the server reads it before accepting the next connection, so the owner of the server can
always connect.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .peer_user import Owner, SocketTable, endpoint, is_loopback

STATE = "mlw.connection"  # key of the connection in a request's scope
DESCRIPTORS = 1024  # enough for the server; child processes inherit the limit, and select() supports no more
_MAX_CONNECTIONS, _MIN_CONNECTIONS = 512, 16

log = logging.getLogger("mlworkbench.ui.connection_limits")


@dataclass(frozen=True)
class Limits:
    """Maximum numbers of open connections."""

    total: int
    unauthenticated: int  # per local user or remote machine


@dataclass(eq=False)
class Connection:
    """Accepted connection."""

    transport: asyncio.Transport
    peer: str
    authenticated: bool = False  # a request on this connection had a valid session or token


@dataclass(frozen=True)
class Refused:
    """Refused connection, with the HTTP response that explains why."""

    status: str
    reason: str

    @property
    def response(self) -> bytes:
        body = f"{self.reason}\n".encode()
        head = f"HTTP/1.1 {self.status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


_OTHER_USER = Refused("403 Forbidden", "only the user who started this server may connect (see: mlw ui --help)")
_FULL = Refused("503 Service Unavailable", "too many connections are open")


class Connections:
    """All connections of a server.

    ``table`` looks up the local user of a connection, or is None if that is not possible. ``only_user``
    is the ID of the only user, besides root, who may connect; unknown users may not. If it is None,
    everyone may connect.
    """

    def __init__(self, limits: Limits, table: SocketTable | None = None, only_user: int | None = None) -> None:
        self._limits = limits
        self._table = table
        self._only_user = only_user
        self._open: list[Connection] = []  # oldest first

    def admit(self, transport: asyncio.Transport) -> Connection | Refused:
        """Admit or refuse a new connection. One check is enough, because its user cannot change."""
        address, owner = transport.get_extra_info("peername"), self._owner(transport)
        if self._only_user is not None and (owner is None or not owner.may_connect(self._only_user)):
            log.warning("refused a connection from %s", "an unknown user" if owner is None else _describe(owner))
            return _OTHER_USER
        peer = _describe(owner) if owner else str(address[0]) if address else "an unknown peer"
        if not self._make_room(peer):
            log.warning("refused a connection from %s: %d are open", peer, len(self._open))
            return _FULL
        connection = Connection(transport, peer)
        self._open.append(connection)
        return connection

    def _owner(self, transport: asyncio.Transport) -> Owner | None:
        """Return the user at the other end of a local connection."""
        local, remote = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        if self._table is None or not local or not remote or not is_loopback(local):
            return None
        try:
            return self._table.owner(endpoint(remote), endpoint(local))
        except OSError as error:
            log.error("cannot determine the user of a connection: %s", error)
            return None

    def _make_room(self, peer: str) -> bool:
        """Return whether ``peer`` may open another connection. Close an older one if necessary."""
        self._open = [connection for connection in self._open if not connection.transport.is_closing()]
        unauthenticated = [connection for connection in self._open if not connection.authenticated]
        counts = Counter(connection.peer for connection in unauthenticated)
        if counts[peer] >= self._limits.unauthenticated:
            _close(next(connection for connection in unauthenticated if connection.peer == peer))
        elif len(self._open) >= self._limits.total:
            if not unauthenticated:
                return False
            most = max(counts.values())  # close a connection of the peer with the most connections
            _close(next(connection for connection in unauthenticated if counts[connection.peer] == most))
        return True


def _describe(owner: Owner) -> str:
    return f"user ID {owner.uid}" if owner.inode else "a process that has ended"


def _close(connection: Connection) -> None:
    log.warning("closed the oldest connection from %s that has not logged in: too many are open", connection.peer)
    connection.transport.abort()


def mark_authenticated(scope: Mapping[str, Any]) -> None:
    """Protect the connection of an authenticated request from being closed to make room."""
    connection = scope.get("state", {}).get(STATE)
    if connection is not None:
        connection.authenticated = True


def limits_for(descriptors: int) -> Limits:
    total = max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, descriptors // 2))
    return Limits(total, total // 2)


def raise_limits() -> Limits:
    """Raise a low limit on open files (256 on macOS), and return the resulting connection limits."""
    if sys.platform == "win32":
        return limits_for(DESCRIPTORS)
    import resource  # noqa: PLC0415 - not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
        else:
            soft = needed
    return limits_for(DESCRIPTORS if soft == resource.RLIM_INFINITY else soft)
