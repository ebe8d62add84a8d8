"""The one door of the web server. Nothing gets past it that cannot show a session or the token, whatever it asks for.

It stands outside the whole application: pages, files, sockets, sub-applications. What it decides it decides from the
raw request (``admission.judge``); it never asks the application.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .admission import Door, Refusal, Request, judge, wants_login
from .headers import harden
from .login import Login
from .sessions import Sessions

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST = 16 * 1024 * 1024  # bytes of a request's body
_POLICY = 1008  # the websocket's word for "not allowed"

log = logging.getLogger("mlworkbench.ui")


class Gate:
    """An ASGI application around another one."""

    def __init__(self, app: App, door: Door, sessions: Sessions, login: Login) -> None:
        self._app = app
        self._door = door
        self._sessions = sessions
        self._login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, harden(send, self._door))
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request.of(scope)
        refusal = judge(request, self._door)
        if refusal is None and wants_login(request):
            await self._login(request, receive, send)
            return
        if refusal is None and not self._sessions.knows(request):
            refusal = Refusal(401, "open this with the link that `mlw ui` prints")
        if refusal is None and request.length > LARGEST:
            refusal = Refusal(413, "the request is too large")
        if refusal is not None:
            await refuse(send, refusal, request)
            return
        await self._pass_on(scope, _bounded(receive), send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request.of(scope)
        if judge(request, self._door) is not None or not self._sessions.knows(request):
            await receive()  # websocket.connect
            await send({"type": "websocket.close", "code": _POLICY})
            return
        await self._app(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What goes wrong inside is told to the log, not to the browser: it may name paths and variables."""
        begun = False

        async def noticed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noticed)
        except Exception:
            name = secrets.token_hex(4)
            log.exception("error %s", name)
            if begun:
                raise
            await refuse(send, Refusal(500, f"something went wrong; the log of mlw ui has it as error {name}"))


def _bounded(receive: Receive) -> Receive:
    """A body that says it is small, or says nothing, and goes on and on."""
    came = 0

    async def bounded() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body") or b"")
        return message if came <= LARGEST else {"type": "http.disconnect"}

    return bounded


async def refuse(send: Send, refusal: Refusal, request: Request | None = None) -> None:
    body = f"{refusal.words}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request and request.method == "HEAD" else body})
