"""Login with a single-use link, or with a password if the server accepts remote connections."""

from __future__ import annotations

import asyncio
import hmac
import html
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from hashlib import scrypt
from ipaddress import IPv4Address, ip_address, ip_network
from os import urandom
from typing import Any
from urllib.parse import parse_qs

from .request_policy import Request, safe_next
from .sessions import Sessions

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_MAX_BODY = 4096
_MAX_CLIENTS = 1000  # maximum clients whose attempts are counted
_MAX_PENDING = 5  # maximum pending attempts per client; with the delays, this limits the rate of guesses
_BODY_TIMEOUT = 20.0  # seconds for the password to arrive
_DELAY, _MAX_DELAY = 0.5, 30.0  # seconds of delay after a wrong password; doubled each time
# Without an icon, the browser would request one outside the secret path.
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ML Workbench</title>
<link rel="icon" href="data:,">
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:4rem auto;padding:0 1rem;
color-scheme:light dark}}input,button{{font:inherit;padding:.4rem .6rem}}</style>
<main><h1>ML Workbench</h1><p role="status">{message}</p>{form}</main></html>"""
# With the no-referrer policy of the other pages, the browser would omit the origin of this form.
_FORM = """<meta name="referrer" content="same-origin"><form method="post" action="{base}/login">
<input type="hidden" name="next" value="{next}">
<label>Password <input type="password" name="password" autocomplete="current-password" autofocus required></label>
<button>Log in</button></form>"""


class Password:
    """Password of the server, kept in memory as a hash."""

    def __init__(self, text: str) -> None:
        self._salt = urandom(16)
        self._hash = self._digest(text)

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(self._digest(text), self._hash)

    def _digest(self, text: str) -> bytes:
        return scrypt(text.encode("utf-8", "surrogateescape"), salt=self._salt, n=2**14, r=8, p=1)


@dataclass
class _Attempts:
    """Login attempts of one client."""

    failures: int = 0
    pending: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Login:
    """Handler for ``/login``, the only path that does not require a session.

    Requests must still pass ``check_request``.
    """

    def __init__(self, sessions: Sessions, prefix: str, password: Password | None = None) -> None:
        self._sessions = sessions
        self._prefix = prefix  # secret path, used if a session starts with a password at the numeric address
        self._password = password
        self._attempts: OrderedDict[str, _Attempts] = OrderedDict()

    async def __call__(self, request: Request, receive: Receive, send: Send) -> None:
        if request.method == "POST":
            await self._log_in_by_password(request, receive, send)
        elif request.method == "GET":
            await self._log_in_by_code(request, send)
        else:
            await _respond(send, 403, "method not allowed")

    async def log_out(self, request: Request, send: Send) -> None:
        self._sessions.end(request)
        cookie = (b"set-cookie", self._sessions.cookie("", request.base).encode())
        await _respond(send, 200, "You are logged out. Run mlw ui to log in again.", "", [cookie])

    async def show_login(self, request: Request, send: Send) -> None:
        message = "You are not logged in. Run mlw ui again to open a new link; it works while the server runs."
        if self._password is not None:
            await _respond(send, 401, "Enter the password for this server.", _form(request, "/"))
        else:
            await _respond(send, 401, message)

    async def _log_in_by_code(self, request: Request, send: Send) -> None:
        """Log in with a code, but only at the secret address.

        At any other address, the browser would send the cookie to all ports of this machine.
        """
        fields = _parse_form(request.query)
        code = fields.get("code", [""])[0] if request.private else ""
        session = self._sessions.redeem(code) if code else None
        target = safe_next(fields.get("next", [None])[0])
        if session is not None:
            await self._start_session(request, send, session, target)
        elif self._sessions.is_authenticated(request):  # the user reloaded the login page
            await _respond(send, 200, "Opening…", _redirect_tag(request.base + target))
        elif self._password is not None:
            await _respond(send, 401, "Enter the password for this server.", _form(request, target))
        else:
            message = "This single-use link was already used or has expired. Run mlw ui again to open a new one."
            await _respond(send, 401, message if code else "Open the link that mlw ui prints.")

    async def _log_in_by_password(self, request: Request, receive: Receive, send: Send) -> None:
        try:
            fields = _parse_form(await asyncio.wait_for(_read_body(receive), _BODY_TIMEOUT))
        except asyncio.TimeoutError:
            await _respond(send, 408, "The request timed out.")
            return
        target = safe_next(fields.get("next", [None])[0])
        if self._password is None:
            await _respond(send, 403, "This server has no password.")
            return
        attempts = self._attempts_from(request.client or "")
        if attempts.pending >= _MAX_PENDING:
            await _respond(send, 429, "Too many wrong passwords from this address. Try again in 30 seconds.")
            return
        if await _check_password(self._password, fields.get("password", [""])[0], attempts):
            await self._start_session(request, send, self._sessions.create(), target)
        else:
            await _respond(send, 401, "Wrong password.", _form(request, target))

    def _attempts_from(self, client: str) -> _Attempts:
        network = _network(client)
        attempts = self._attempts.setdefault(network, _Attempts())
        self._attempts.move_to_end(network)
        while len(self._attempts) > _MAX_CLIENTS:
            self._attempts.popitem(last=False)
        return attempts

    async def _start_session(self, request: Request, send: Send, session: str, target: str) -> None:
        """Set the session cookie with a page that immediately loads the target page.

        An HTTP redirect would not work: the cookie is SameSite=Strict, and browsers do not send such cookies after a
        redirect if the login link was on another site. The page uses a refresh tag instead.
        """
        base = request.base if request.private else self._prefix
        cookie = (b"set-cookie", self._sessions.cookie(session, base).encode())
        await _respond(send, 200, "Opening…", _redirect_tag(base + target), [cookie])


def _network(client: str) -> str:
    """Return the key for counting attempts: an IPv4 address, or the /64 network of an IPv6 host."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))


async def _check_password(password: Password, text: str, attempts: _Attempts) -> bool:
    """Return whether the password is correct. If it is not, return after a delay."""
    attempts.pending += 1
    try:
        async with attempts.lock:  # one check per client at a time, so that a client does not block others
            is_correct = await asyncio.to_thread(password.matches, text)
        attempts.failures = 0 if is_correct else attempts.failures + 1
        if not is_correct:
            await asyncio.sleep(min(_MAX_DELAY, _DELAY * 2 ** min(attempts.failures, 10)))
        return is_correct
    finally:
        attempts.pending -= 1


async def _read_body(receive: Receive) -> bytes:
    data = b""
    while len(data) <= _MAX_BODY:
        message = await receive()
        data += message.get("body") or b""
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    return data[:_MAX_BODY]


def _parse_form(data: bytes) -> dict[str, list[str]]:
    """Parse form fields. Return an empty dictionary if there are too many."""
    try:
        return parse_qs(data.decode("latin-1"), max_num_fields=10)
    except ValueError:
        return {}


def _form(request: Request, target: str) -> str:
    return _FORM.format(base=request.base, next=html.escape(target))


def _redirect_tag(target: str) -> str:
    return f'<meta http-equiv="refresh" content="0;url={html.escape(target)}">'


async def _respond(
    send: Send, status: int, text: str, form: str = "", headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = _PAGE.format(message=html.escape(text), form=form).encode()
    size = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"text/html; charset=utf-8"), size, *(headers or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
