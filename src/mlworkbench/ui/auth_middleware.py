"""ASGI middleware that admits only requests with a session or the token.

It wraps the whole application: pages, files, sockets, and sub-applications. It decides based on the
raw request alone (see ``request_policy.check_request``) and never calls the application to decide.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .connection_limits import mark_authenticated
from .login import Login
from .request_policy import AccessPolicy, Request, RequestRefusal, check_request, is_login, is_logout, strip_secret
from .security_headers import harden
from .sessions import Sessions

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 16 * 1024 * 1024  # maximum body bytes
_POLICY_VIOLATION = 1008  # WebSocket close code for "policy violation"
_BODY_KEY = "mlworkbench.body"  # scope key for the ``_RequestBody``

log = logging.getLogger("mlworkbench.ui")


class AuthMiddleware:
    """ASGI application that authenticates requests to another application."""

    def __init__(self, app: App, policy: AccessPolicy, sessions: Sessions, login: Login) -> None:
        self._app = app
        self._policy = policy
        self._sessions = sessions
        self._login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._handle_http(_without_proxy_headers(scope), receive, send)
        elif scope["type"] == "websocket":
            await self._handle_websocket(_without_proxy_headers(scope), receive, send)

    async def _handle_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = strip_secret(Request.from_scope(scope), self._policy)
        refusal = check_request(request, self._policy)
        scope, send = _with_root_path(scope, request), harden(send, request, refusal is None)
        if refusal is None and is_login(request):
            await _guard_errors(_RequestBody(receive), send, lambda receive, send: self._login(request, receive, send))
            return
        if refusal is None and not self._sessions.is_authenticated(request):
            refusal = RequestRefusal(401, "not authenticated; open the link that `mlw ui` prints")
        if refusal is None and request.length > MAX_BODY:
            refusal = RequestRefusal(413, "the request is too large")
        if refusal is not None and refusal.status == 401 and request.method == "GET" and request.is_navigation:
            await self._login.show_login(request, send)
            return
        if refusal is not None:
            await refuse(send, refusal, request)
            return
        mark_authenticated(scope)
        if is_logout(request):
            await self._login.log_out(request, send)
            return
        body = _RequestBody(receive)
        scope[_BODY_KEY] = body
        await _guard_errors(body, send, lambda receive, send: self._app(scope, receive, send))

    async def _handle_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = strip_secret(Request.from_scope(scope), self._policy)
        if check_request(request, self._policy) is not None or not self._sessions.is_authenticated(request):
            await receive()  # ASGI requires receiving websocket.connect first
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        mark_authenticated(scope)
        session_end = self._sessions.end_event(request) if request.bearer is None else asyncio.Event()
        ended = asyncio.ensure_future(session_end.wait())
        try:
            await self._app(_with_root_path(scope, request), _receive_until(ended, receive, send), send)
        finally:
            ended.cancel()


def _without_proxy_headers(scope: Scope) -> Scope:
    """Return the scope without proxy headers, which NiceGUI would copy into pages. No proxy is used."""
    kept = [(name, value) for name, value in scope["headers"] if not name.lower().startswith(b"x-forwarded-")]
    return {**scope, "headers": kept}


def _with_root_path(scope: Scope, request: Request) -> Scope:
    """Return the scope with the secret path as its root path, so that links in pages start with it."""
    return {**scope, "root_path": request.base}


class _RequestBody:
    """Request body with a size limit. A body that exceeds it, whatever its declared length, ends as a disconnect."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received = 0
        self._disconnected = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body") or b"")
        if self._received > MAX_BODY:
            message = {"type": "http.disconnect"}
        self._disconnected = message["type"] == "http.disconnect"
        return message

    async def is_disconnected(self) -> bool:
        """Return whether the client has disconnected, even if the application has not read the body yet."""
        if not self._disconnected:
            receiving = asyncio.ensure_future(self())
            await asyncio.sleep(0)  # lets the task run once; it finishes if the connection is closed
            receiving.cancel()
            await asyncio.wait({receiving})
        return self._disconnected


async def is_disconnected(scope: Scope) -> bool:
    """Return whether the client of this request has disconnected."""
    body = scope.get(_BODY_KEY)
    return isinstance(body, _RequestBody) and await body.is_disconnected()


async def _guard_errors(body: _RequestBody, send: Send, work: Callable[[Receive, Send], Awaitable[None]]) -> None:
    """Log application errors instead of sending them to the browser.

    They may contain paths and variables.
    """
    started = complete = False

    async def tracked_send(message: Message) -> None:
        nonlocal started, complete
        started, complete = True, message["type"] == "http.response.body" and not message.get("more_body")
        await send(message)

    try:
        await work(body, tracked_send)
    except Exception:
        if complete:
            return  # the application reported the error itself
        if not started and await body.is_disconnected():
            return  # the client disconnected, for example to open another page
        error_id = secrets.token_hex(4)
        log.exception("error %s", error_id)
        if started:
            raise
        await refuse(send, RequestRefusal(500, f"internal error {error_id}; see the log of mlw ui for details"))


def _receive_until(ended: asyncio.Future[Any], receive: Receive, send: Send) -> Receive:
    """Return a ``receive`` that closes the socket when its session ends."""

    async def until() -> Message:
        message = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({message, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return message.result()
        finally:
            message.cancel()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        return {"type": "websocket.disconnect", "code": _POLICY_VIOLATION}

    return until


async def refuse(send: Send, refusal: RequestRefusal, request: Request | None = None) -> None:
    body = f"{refusal.message}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request and request.method == "HEAD" else body})
