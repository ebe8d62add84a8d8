"""The open connections of the server: who may open one, how many, and which one is closed to make room.

Every connection takes a descriptor, and so do log files, commands, and terminals. Connections get at most half of the
descriptors. When they are used up, the oldest connection without a login is closed: a new connection whose request has
arrived is read before the next one is accepted, so its owner always gets through.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .peer import Owner, SocketTable, endpoint, is_loopback

STATE = "mlw.connection"  # where the scope of a request holds its connection
DESCRIPTORS = 1024  # enough for us; programs that we start inherit the limit, and select() works up to here
_MOST, _FEWEST = 512, 16

log = logging.getLogger("mlworkbench.ui.connections")


@dataclass(frozen=True)
class Limits:
    """How many connections may be open."""

    total: int
    unauthenticated: int  # of one user, or of one machine elsewhere


@dataclass(eq=False)
class Connection:
    """One that was admitted."""

    transport: asyncio.Transport
    peer: str
    authenticated: bool = False  # a request over it has shown a session or the token


@dataclass(frozen=True)
class Refused:
    """One that was not, and the HTTP response that says why."""

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
    """Those of one server. ``table``: where users of this machine are looked up, None if they cannot be.

    ``only_user``: the user ID that may connect, beside root; an unknown user may not. None: everybody may.
    """

    def __init__(self, limits: Limits, table: SocketTable | None = None, only_user: int | None = None) -> None:
        self._limits = limits
        self._table = table
        self._only_user = only_user
        self._open: list[Connection] = []  # oldest first

    def admit(self, transport: asyncio.Transport) -> Connection | Refused:
        """Decide once, when the connection is made: its user cannot change afterwards."""
        address, owner = transport.get_extra_info("peername"), self._owner(transport)
        if self._only_user is not None and (owner is None or not owner.may_connect(self._only_user)):
            log.warning("refused a connection from %s", "an unknown user" if owner is None else _user(owner))
            return _OTHER_USER
        peer = _user(owner) if owner else str(address[0]) if address else "an unknown peer"
        if not self._make_room(peer):
            log.warning("refused a connection from %s: %d are open", peer, len(self._open))
            return _FULL
        connection = Connection(transport, peer)
        self._open.append(connection)
        return connection

    def _owner(self, transport: asyncio.Transport) -> Owner | None:
        """The user at the other end of a connection within this machine."""
        local, remote = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        if self._table is None or not local or not remote or not is_loopback(local):
            return None
        try:
            return self._table.owner(endpoint(remote), endpoint(local))
        except OSError as error:
            log.error("cannot determine the user of a connection: %s", error)
            return None

    def _make_room(self, peer: str) -> bool:
        """Whether one more connection of this peer may be open, after an older one was closed if need be."""
        self._open = [one for one in self._open if not one.transport.is_closing()]
        unknown = [one for one in self._open if not one.authenticated]
        counts = Counter(one.peer for one in unknown)
        if counts[peer] >= self._limits.unauthenticated:
            _close(next(one for one in unknown if one.peer == peer))
        elif len(self._open) >= self._limits.total:
            if not unknown:
                return False
            most = max(counts.values())  # close one of the user with the most connections
            _close(next(one for one in unknown if counts[one.peer] == most))
        return True


def _user(owner: Owner) -> str:
    return f"user ID {owner.uid}" if owner.inode else "a process that has ended"


def _close(connection: Connection) -> None:
    log.warning("closed the oldest connection from %s that has not logged in: too many are open", connection.peer)
    connection.transport.abort()


def mark_authenticated(scope: Mapping[str, Any]) -> None:
    """A request has shown a session or the token: its connection is not closed to make room."""
    connection = scope.get("state", {}).get(STATE)
    if connection is not None:
        connection.authenticated = True


def limits_of(descriptors: int) -> Limits:
    total = max(_FEWEST, min(_MOST, descriptors // 2))
    return Limits(total, total // 2)


def raise_limits() -> Limits:
    """Let this process open more files, where the system gives few (macOS: 256), and divide them."""
    if sys.platform == "win32":
        return limits_of(DESCRIPTORS)
    import resource  # noqa: PLC0415 - not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
        else:
            soft = wanted
    return limits_of(DESCRIPTORS if soft == resource.RLIM_INFINITY else soft)
