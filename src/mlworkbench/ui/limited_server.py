"""uvicorn server and HTTP protocol with connection limits."""

from __future__ import annotations

import asyncio
import socket
from typing import ClassVar

import uvicorn

from .connection_limits import STATE, Connections, Refused
from .http_limits import BoundedHttpProtocol

ACCEPTED_AT_ONCE = 1
_QUEUE = 2048  # maximum queued connections; the kernel may apply a lower limit


class LimitedProtocol(BoundedHttpProtocol):
    """HTTP protocol that serves a connection only if the registry admits it."""

    registry: ClassVar[Connections]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = self.registry.admit(transport)
        if isinstance(connection, Refused):
            transport.write(connection.response)
            transport.close()  # without reading any data
            return
        # The scopes of all requests and WebSockets on this connection contain this state.
        self.app_state = {**self.app_state, STATE: connection}


class LimitedServer(uvicorn.Server):
    """Server that accepts one connection per iteration of the event loop.

    By default, asyncio accepts all queued connections before it reads any requests. A burst would use
    up all descriptors, and connections whose requests have arrived would be closed unread.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)  # this also sets the queue length to ACCEPTED_AT_ONCE
        for listener in sockets or ():
            listener.listen(_QUEUE)


def protocol_for(registry: Connections) -> type[LimitedProtocol]:
    """Return a protocol class for ``registry``.

    A class is needed because uvicorn creates the protocols itself and cannot pass arguments.
    """
    return type("LimitedProtocol", (LimitedProtocol,), {"registry": registry})
