"""uvicorn's server and HTTP protocol, with our limits on connections."""

from __future__ import annotations

import asyncio
import socket
from typing import ClassVar

import uvicorn

from .connections import STATE, Connections, Refused
from .patience import Patient

ACCEPTED_AT_ONCE = 1
_QUEUE = 2048  # connections that the kernel holds for us; it applies its own maximum


class LimitedProtocol(Patient):
    """HTTP on one connection, if it is admitted."""

    registry: ClassVar[Connections]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        admitted = self.registry.admit(transport)
        if isinstance(admitted, Refused):
            transport.write(admitted.response)
            transport.close()  # nothing that it sends is read
            return
        # Requests get this state in their scope, and so does the websocket that the connection may turn into.
        self.app_state = {**self.app_state, STATE: admitted}


class LimitedServer(uvicorn.Server):
    """Accepts one connection per turn of the event loop.

    asyncio accepts as many at once as the queue holds, before it reads any: a burst would use up all descriptors, and
    push out a connection whose request has arrived but was not read.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)  # listens with a queue of ACCEPTED_AT_ONCE, too
        for one in sockets or ():
            one.listen(_QUEUE)


def protocol_for(registry: Connections) -> type[LimitedProtocol]:
    """uvicorn creates the protocol of each connection, and passes on nothing of ours."""
    return type("LimitedProtocol", (LimitedProtocol,), {"registry": registry})
