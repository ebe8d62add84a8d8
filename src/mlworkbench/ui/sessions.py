"""Authentication: browser sessions, and the token for programs that can read the server file."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import time
from hashlib import sha256
from pathlib import Path

from ..remote.shared.atomic_files import read_json, write_atomic
from .request_policy import Request

_DAYS = 7
_MAX_SESSIONS = 100
CODE_SECONDS = 120


class Sessions:
    """Browser sessions. The file contains only digests, which cannot be used to log in.

    A new server removes the file unless it keeps the last server's address. A session is valid only for
    one port and only at the secret address. After a server ends, another program could listen on its
    port and receive the cookies that open pages still send.
    """

    def __init__(self, file: Path, cookie: str) -> None:
        self._file = file
        self._cookie = cookie
        self._sessions = self._load()
        self._started_here: dict[str, float] = {}  # sessions of this server; another server may have deleted the file
        self._codes: dict[str, float] = {}
        self._end_events: dict[str, asyncio.Event] = {}
        self.token = secrets.token_urlsafe(32)  # for programs; new at every start

    # -- login -------------------------------------------------------------------------------------------

    def new_code(self) -> str:
        """Create a login code that works once, within two minutes.

        These limits are needed because the code is part of a URL, and browsers store URLs.
        """
        code = secrets.token_urlsafe(32)
        now = time.monotonic()
        self._codes = {digest: until for digest, until in self._codes.items() if until > now}
        self._codes[_digest(code)] = now + CODE_SECONDS
        return code

    def redeem(self, code: str) -> str | None:
        """Return a new session for a code, or None if the code is wrong, expired, or already used."""
        until = self._codes.pop(_digest(code), 0.0)
        return self.create() if time.monotonic() < until else None

    def create(self) -> str:
        """Create a session and return its cookie value."""
        value = secrets.token_urlsafe(32)
        self._store(started=self._session_id(value))
        return value

    def end(self, request: Request) -> None:
        """End a session permanently, including its open pages."""
        session_id = self._find_session(request)
        if session_id is not None:
            self._store(ended=session_id)
            self._end_events.pop(session_id, asyncio.Event()).set()

    # -- authentication ----------------------------------------------------------------------------------------------

    def is_authenticated(self, request: Request) -> bool:
        if request.bearer is not None:
            return hmac.compare_digest(_digest(request.bearer), _digest(self.token))
        session_id = self._find_session(request) if request.private else None
        return session_id is not None and time.time() - self._sessions[session_id] < _DAYS * 86400

    def end_event(self, request: Request) -> asyncio.Event:
        """Return an event that is set when the session of this request ends.

        The event is for connections that outlive a request.
        """
        return self._end_events.setdefault(self._find_session(request) or "", asyncio.Event())

    def cookie(self, value: str, base: str) -> str:
        """Return the ``Set-Cookie`` header for a session. An empty value deletes the cookie.

        The cookie has no ``Domain``, so that no other host receives it. ``__Host-`` and ``Secure`` would
        require TLS.
        """
        age = _DAYS * 86400 if value else 0
        return f"{self._cookie}={value}; Path={base}/; Max-Age={age}; HttpOnly; SameSite=Strict"

    def _find_session(self, request: Request) -> str | None:
        """Return the ID of the request's session.

        Other programs on this machine may set cookies for the same host, even with the same name or with
        invalid syntax.
        """
        pairs = (pair.strip().partition("=") for pair in request.headers.get("cookie", "").split(";"))
        session_ids = (self._session_id(value) for name, _, value in pairs if name == self._cookie)
        return next(
            (session_id for session_id in session_ids if session_id in self._sessions), None
        )  # comparing digests reveals nothing about the values

    # -- the file ------------------------------------------------------------------------------------------------

    def _load(self) -> dict[str, float]:
        data = read_json(str(self._file)) or {}
        oldest = time.time() - _DAYS * 86400
        return {str(key): float(at) for key, at in data.items() if isinstance(at, (int, float)) and at > oldest}

    def _session_id(self, value: str) -> str:
        return _digest(f"{self._cookie}={value}")

    def _store(self, started: str | None = None, ended: str | None = None) -> None:
        """Merge changes into the file, which another server of the same user may have changed."""
        if started:
            self._started_here[started] = time.time()
        self._started_here.pop(ended or "", None)
        sessions = {**self._load(), **self._started_here}
        sessions.pop(ended or "", None)
        self._sessions = dict(sorted(sessions.items(), key=lambda item: item[1])[-_MAX_SESSIONS:])
        os.makedirs(self._file.parent, mode=0o700, exist_ok=True)
        write_atomic(str(self._file), self._sessions)


def _digest(value: str) -> str:
    return sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
