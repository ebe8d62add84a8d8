"""Who may come in: browsers that were let in once, and programs of this user that can read the token's file."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import time
from hashlib import sha256
from pathlib import Path

from ..remote.shared.files import read_json, write_whole
from .admission import Request

_DAYS = 7
_MOST = 100
CODE_SECONDS = 120


class Sessions:
    """The file holds only digests: they are no use for a login. It is removed when a server starts, unless
    that one keeps the address of the last.

    A session counts at its port and at the secret address only: whoever gets hold of that port while we do not have
    it also gets the cookies that open pages send there.
    """

    def __init__(self, file: Path, cookie: str) -> None:
        self._file = file
        self._cookie = cookie
        self._known = self._load()
        self._begun: dict[str, float] = {}  # here; another server may have emptied the file since
        self._codes: dict[str, float] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self.token = secrets.token_urlsafe(32)  # for programs; a new one with every start

    # -- coming in -------------------------------------------------------------------------------------------

    def new_code(self) -> str:
        """Good once, for two minutes: it stands in an address, and addresses are remembered by browsers."""
        code = secrets.token_urlsafe(32)
        now = time.monotonic()
        self._codes = {known: until for known, until in self._codes.items() if until > now}
        self._codes[_digest(code)] = now + CODE_SECONDS
        return code

    def redeem(self, code: str) -> str | None:
        """The session for a code; None if it is wrong, old or used."""
        until = self._codes.pop(_digest(code), 0.0)
        return self.begin() if time.monotonic() < until else None

    def begin(self) -> str:
        """A new session: the value of its cookie."""
        value = secrets.token_urlsafe(32)
        self._store(begun=self._mark(value))
        return value

    def end(self, request: Request) -> None:
        """For good: also in the pages that are open with it."""
        mark = self._find(request)
        if mark is not None:
            self._store(ended=mark)
            self._ends.pop(mark, asyncio.Event()).set()

    # -- being in ----------------------------------------------------------------------------------------------

    def knows(self, request: Request) -> bool:
        if request.bearer is not None:
            return hmac.compare_digest(_digest(request.bearer), _digest(self.token))
        mark = self._find(request) if request.private else None
        return mark is not None and time.time() - self._known[mark] < _DAYS * 86400

    def ending(self, request: Request) -> asyncio.Event:
        """Set when the session that this request belongs to ends; what lasts longer than a request waits for it."""
        return self._ends.setdefault(self._find(request) or "", asyncio.Event())

    def cookie(self, value: str, base: str) -> str:
        """The header that gives a browser its session; an empty value takes it away.

        It has no Domain, so that no other host gets it. ``__Host-`` and Secure would need TLS.
        """
        age = _DAYS * 86400 if value else 0
        return f"{self._cookie}={value}; Path={base}/; Max-Age={age}; HttpOnly; SameSite=Strict"

    def _find(self, request: Request) -> str | None:
        """The mark of its session. Other programs of this machine set cookies for the same host, of the same name even,
        and in forms that no parser likes."""
        pairs = (one.strip().partition("=") for one in request.headers.get("cookie", "").split(";"))
        marks = (self._mark(value) for name, _, value in pairs if name == self._cookie)
        return next((mark for mark in marks if mark in self._known), None)  # digests: their comparing tells nothing

    # -- the file ------------------------------------------------------------------------------------------------

    def _load(self) -> dict[str, float]:
        told = read_json(str(self._file)) or {}
        oldest = time.time() - _DAYS * 86400
        return {str(key): float(at) for key, at in told.items() if isinstance(at, (int, float)) and at > oldest}

    def _mark(self, value: str) -> str:
        return _digest(f"{self._cookie}={value}")

    def _store(self, begun: str | None = None, ended: str | None = None) -> None:
        """Beside what another server of this user has noted meanwhile."""
        if begun:
            self._begun[begun] = time.time()
        self._begun.pop(ended or "", None)
        every = {**self._load(), **self._begun}
        every.pop(ended or "", None)
        self._known = dict(sorted(every.items(), key=lambda item: item[1])[-_MOST:])
        os.makedirs(self._file.parent, mode=0o700, exist_ok=True)
        write_whole(str(self._file), self._known)


def _digest(value: str) -> str:
    return sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
