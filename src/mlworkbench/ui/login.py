"""Coming in: by the one-time link, or by the password where the server listens to other machines."""

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

from .admission import Request, safe_next
from .sessions import Sessions

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LARGEST = 4096
_MOST = 1000  # machines whose guesses are counted
_WAITING = 5  # guesses of one machine that wait for their answers; with the pauses, this limits how many it can try
_SLOWEST = 20.0  # seconds for the password to arrive
_PAUSE, _LONGEST = 0.5, 30.0  # seconds after a wrong password; twice as long after each further one
# Without an icon of its own, the browser would ask for one outside the secret path.
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ML Workbench</title>
<link rel="icon" href="data:,">
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:4rem auto;padding:0 1rem;
color-scheme:light dark}}input,button{{font:inherit;padding:.4rem .6rem}}</style>
<main><h1>ML Workbench</h1><p role="status">{words}</p>{form}</main></html>"""
# The policy of all pages, no referrer, would make the browser hide from us that this form is ours.
_FORM = """<meta name="referrer" content="same-origin"><form method="post" action="{base}/login">
<input type="hidden" name="next" value="{next}">
<label>Password <input type="password" name="password" autocomplete="current-password" autofocus required></label>
<button>Log in</button></form>"""


class Password:
    """Kept as a hash, for as long as the server lives."""

    def __init__(self, text: str) -> None:
        self._salt = urandom(16)
        self._hash = self._of(text)

    def fits(self, text: str) -> bool:
        return hmac.compare_digest(self._of(text), self._hash)

    def _of(self, text: str) -> bytes:
        return scrypt(text.encode("utf-8", "surrogateescape"), salt=self._salt, n=2**14, r=8, p=1)


@dataclass
class _Guesser:
    """A machine from which passwords are tried."""

    wrong: int = 0
    waiting: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Login:
    """Answers /login, the only address that is open to everybody who got through ``admission.judge``."""

    def __init__(self, sessions: Sessions, prefix: str, password: Password | None = None) -> None:
        self._sessions = sessions
        self._prefix = prefix  # where the session of a password counts that was typed at the numeric address
        self._password = password
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()

    async def __call__(self, request: Request, receive: Receive, send: Send) -> None:
        if request.method == "POST":
            await self._by_password(request, receive, send)
        elif request.method == "GET":
            await self._by_code(request, send)
        else:
            await _answer(send, 403, "method not allowed")

    async def leave(self, request: Request, send: Send) -> None:
        self._sessions.end(request)
        cookie = (b"set-cookie", self._sessions.cookie("", request.base).encode())
        await _answer(send, 200, "You are logged out. Run mlw ui to log in again.", "", [cookie])

    async def turn_away(self, request: Request, send: Send) -> None:
        words = "You are not logged in. Run mlw ui again to open a new link; it works while the server runs."
        if self._password is not None:
            await _answer(send, 401, "Enter the password for this server.", _form(request, "/"))
        else:
            await _answer(send, 401, words)

    async def _by_code(self, request: Request, send: Send) -> None:
        """At the secret address only: elsewhere, the cookie would be for all ports of this machine."""
        asked = _fields(request.query)
        code = asked.get("code", [""])[0] if request.private else ""
        session = self._sessions.redeem(code) if code else None
        target = safe_next(asked.get("next", [None])[0])
        if session is not None:
            await self._come_in(request, send, session, target)
        elif self._sessions.knows(request):  # the page was loaded again
            await _answer(send, 200, "Opening…", _onward(request.base + target))
        elif self._password is not None:
            await _answer(send, 401, "Enter the password for this server.", _form(request, target))
        else:
            words = "This single-use link was already used or has expired. Run mlw ui again to open a new one."
            await _answer(send, 401, words if code else "Open the link that mlw ui prints.")

    async def _by_password(self, request: Request, receive: Receive, send: Send) -> None:
        try:
            asked = _fields(await asyncio.wait_for(_body(receive), _SLOWEST))
        except asyncio.TimeoutError:
            await _answer(send, 408, "The request timed out.")
            return
        target = safe_next(asked.get("next", [None])[0])
        if self._password is None:
            await _answer(send, 403, "This server has no password.")
            return
        guesser = self._guesser(request.client or "")
        if guesser.waiting >= _WAITING:
            await _answer(send, 429, "Too many wrong passwords from this address. Try again in 30 seconds.")
            return
        if await _fits(self._password, asked.get("password", [""])[0], guesser):
            await self._come_in(request, send, self._sessions.begin(), target)
        else:
            await _answer(send, 401, "Wrong password.", _form(request, target))

    def _guesser(self, client: str) -> _Guesser:
        network = _network(client)
        found = self._guessers.setdefault(network, _Guesser())
        self._guessers.move_to_end(network)
        while len(self._guessers) > _MOST:
            self._guessers.popitem(last=False)
        return found

    async def _come_in(self, request: Request, send: Send, session: str, target: str) -> None:
        """By a page of ours that leads on: after a redirect a browser holds back the cookie that it just got."""
        base = request.base if request.private else self._prefix
        cookie = (b"set-cookie", self._sessions.cookie(session, base).encode())
        await _answer(send, 200, "Opening…", _onward(base + target), [cookie])


def _network(client: str) -> str:
    """What guesses are counted by: an IPv4 address, or the /64 network of an IPv6 address, of which a host has all."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))


async def _fits(password: Password, text: str, guesser: _Guesser) -> bool:
    """Whether it is the password; after a pause, if not."""
    guesser.waiting += 1
    try:
        async with guesser.turn:  # one guess at a time from each machine: nobody keeps the others out
            fits = await asyncio.to_thread(password.fits, text)
        guesser.wrong = 0 if fits else guesser.wrong + 1
        if not fits:
            await asyncio.sleep(min(_LONGEST, _PAUSE * 2 ** min(guesser.wrong, 10)))
        return fits
    finally:
        guesser.waiting -= 1


async def _body(receive: Receive) -> bytes:
    found = b""
    while len(found) <= _LARGEST:
        message = await receive()
        found += message.get("body") or b""
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    return found[:_LARGEST]


def _fields(data: bytes) -> dict[str, list[str]]:
    """None at all where there are more than we ever send."""
    try:
        return parse_qs(data.decode("latin-1"), max_num_fields=10)
    except ValueError:
        return {}


def _form(request: Request, target: str) -> str:
    return _FORM.format(base=request.base, next=html.escape(target))


def _onward(target: str) -> str:
    return f'<meta http-equiv="refresh" content="0;url={html.escape(target)}">'


async def _answer(
    send: Send, status: int, words: str, more: str = "", headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = _PAGE.format(words=html.escape(words), form=more).encode()
    size = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"text/html; charset=utf-8"), size, *(headers or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
