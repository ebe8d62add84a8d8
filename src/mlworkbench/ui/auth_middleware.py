"""The one door of the web server. Nothing gets past it that cannot show a session or the token, whatever it asks for.

It stands outside the whole application: pages, files, sockets, sub-applications. What it decides it decides from the
raw request (``admission.judge``); it never asks the application.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .admission import Door, Refusal, Request, judge, locate, wants_login, wants_logout
from .connections import mark_authenticated
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
_BODY = "mlworkbench.body"  # in the scope of a request: its _Coming

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
            await self._http(_direct(scope), receive, send)
        elif scope["type"] == "websocket":
            await self._socket(_direct(scope), receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = locate(Request.of(scope), self._door)
        refusal = judge(request, self._door)
        scope, send = _below(scope, request), harden(send, request, refusal is None)
        if refusal is None and wants_login(request):
            await _guarded(_Coming(receive), send, lambda receive, send: self._login(request, receive, send))
            return
        if refusal is None and not self._sessions.knows(request):
            refusal = Refusal(401, "not authenticated; open the link that `mlw ui` prints")
        if refusal is None and request.length > LARGEST:
            refusal = Refusal(413, "the request is too large")
        if refusal is not None and refusal.status == 401 and request.method == "GET" and request.by_hand:
            await self._login.turn_away(request, send)
            return
        if refusal is not None:
            await refuse(send, refusal, request)
            return
        mark_authenticated(scope)
        if wants_logout(request):
            await self._login.leave(request, send)
            return
        coming = _Coming(receive)
        scope[_BODY] = coming
        await _guarded(coming, send, lambda receive, send: self._app(scope, receive, send))

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = locate(Request.of(scope), self._door)
        if judge(request, self._door) is not None or not self._sessions.knows(request):
            await receive()  # websocket.connect
            await send({"type": "websocket.close", "code": _POLICY})
            return
        mark_authenticated(scope)
        ending = self._sessions.ending(request) if request.bearer is None else asyncio.Event()
        over = asyncio.ensure_future(ending.wait())
        try:
            await self._app(_below(scope, request), _until(over, receive, send), send)
        finally:
            over.cancel()


def _direct(scope: Scope) -> Scope:
    """Without what a proxy would say: there is none, and NiceGUI would write it into its pages."""
    kept = [(name, value) for name, value in scope["headers"] if not name.lower().startswith(b"x-forwarded-")]
    return {**scope, "headers": kept}


def _below(scope: Scope, request: Request) -> Scope:
    """The application gets the secret path as its root path: links in its pages have to begin with it."""
    return {**scope, "root_path": request.base}


class _Coming:
    """The body of a request. One that says it is small, or says nothing, and goes on and on, is cut off."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._came = 0
        self._gone = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._came += len(message.get("body") or b"")
        if self._came > LARGEST:
            message = {"type": "http.disconnect"}
        self._gone = message["type"] == "http.disconnect"
        return message

    async def is_gone(self) -> bool:
        """Whether nobody waits for the response any more. The application may not have asked for it yet."""
        if not self._gone:
            asked = asyncio.ensure_future(self())
            await asyncio.sleep(0)  # the server answers at once if the connection is closed, else when it closes
            asked.cancel()
            await asyncio.wait({asked})
        return self._gone


async def is_gone(scope: Scope) -> bool:
    """Whether nobody waits for the response to this request any more."""
    coming = scope.get(_BODY)
    return isinstance(coming, _Coming) and await coming.is_gone()


async def _guarded(coming: _Coming, send: Send, work: Callable[[Receive, Send], Awaitable[None]]) -> None:
    """What goes wrong inside is told to the log, not to the browser: it may name paths and variables."""
    begun = whole = False

    async def noticed(message: Message) -> None:
        nonlocal begun, whole
        begun, whole = True, message["type"] == "http.response.body" and not message.get("more_body")
        await send(message)

    try:
        await work(coming, noticed)
    except Exception:
        if whole:
            return  # the application has told of it itself
        if not begun and await coming.is_gone():
            return  # whoever asked has turned to another page meanwhile
        name = secrets.token_hex(4)
        log.exception("error %s", name)
        if begun:
            raise
        await refuse(send, Refusal(500, f"internal error {name}; see the log of mlw ui for details"))


def _until(over: asyncio.Future[Any], receive: Receive, send: Send) -> Receive:
    """A socket lives no longer than the session that it came in with."""

    async def until() -> Message:
        coming = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({coming, over}, return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                return coming.result()
        finally:
            coming.cancel()
        await send({"type": "websocket.close", "code": _POLICY})
        return {"type": "websocket.disconnect", "code": _POLICY}

    return until


async def refuse(send: Send, refusal: Refusal, request: Request | None = None) -> None:
    body = f"{refusal.words}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request and request.method == "HEAD" else body})
