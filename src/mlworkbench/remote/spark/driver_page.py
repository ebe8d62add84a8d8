"""The page that Spark's driver serves while it runs: told when it has answered, because its port is a guess."""

from __future__ import annotations

import select
import socket
import time

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Optional

_HERE = "127.0.0.1"
_PORTS = 6  # Spark takes the next one if somebody was quicker
_TRIES = 10 * _PORTS
_PAUSE = 1.0  # seconds after all of them were asked
_PATIENCE = 20.0  # seconds for an answer: the first one of a busy driver takes long
_MOST = 256 * 1024
_QUESTION = b"GET /api/v1/applications HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n"


class Page:
    """Of one application. Asks a little at each look, and never waits."""

    def __init__(self, app: str, port: int, host: str) -> None:
        self._host = host
        self._mark = ('"id":"%s"' % app).encode("utf-8", "replace")
        self._first = port
        self._tried = 0
        self._next = 0.0
        self._socket: Optional[socket.socket] = None
        self._sent = False
        self._deadline = 0.0
        self._heard = b""

    @property
    def silent(self) -> bool:
        """Whether it is given up."""
        return self._socket is None and self._tried >= _TRIES

    def look(self) -> Optional[str]:
        """Its address, once."""
        try:
            if self._socket is None:
                self._begin()
            if self._socket is not None and self._listen(self._socket):
                port = self._port()
                self.close()
                return "http://%s:%d" % (self._host, port)
        except OSError:
            self._give_up_port()
        return None

    def _port(self) -> int:
        return self._first + self._tried % _PORTS

    def _begin(self) -> None:
        if self.silent or time.monotonic() < self._next:
            return
        self._sent, self._heard, self._deadline = False, b"", time.monotonic() + _PATIENCE
        self._socket = one = socket.socket()
        one.setblocking(False)
        one.connect_ex((_HERE, self._port()))

    def _listen(self, one: socket.socket) -> bool:
        """Whether it is the application's page; what is none is left alone."""
        if not self._sent:
            if not select.select([], [one], [], 0)[1]:
                self._watch_clock()
                return False
            one.sendall(_QUESTION)  # fails if nobody is there
            self._sent = True
        while select.select([one], [], [], 0)[0]:
            data = one.recv(65536)
            self._heard += data
            if self._mark in self._heard.replace(b" ", b""):
                return True
            if not data or len(self._heard) > _MOST:
                raise OSError("another page")
        self._watch_clock()
        return False

    def _watch_clock(self) -> None:
        if time.monotonic() > self._deadline:
            raise OSError("no answer")

    def _give_up_port(self) -> None:
        self.close()
        self._tried += 1
        self._next = time.monotonic() + _PAUSE if self._tried % _PORTS == 0 else 0.0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
