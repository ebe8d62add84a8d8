"""Find the address of a Spark driver's web page.

The port is a guess, so the address is reported only after a response.
"""

from __future__ import annotations

import select
import socket
import time

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional

_LOOPBACK = "127.0.0.1"
_PORTS = 6  # ports to try: if one is taken, Spark uses the next
_MAX_TRIES = 10 * _PORTS
_PAUSE = 1.0  # seconds to wait after all ports were tried
_TIMEOUT = 20.0  # seconds; a busy driver's first response may be slow
_MAX_RESPONSE = 256 * 1024
_REQUEST = b"GET /api/v1/applications HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n"


class DriverPage:
    """A non-blocking search for the page of one application."""

    def __init__(self, app: str, port: int, host: str) -> None:
        self._host = host
        self._marker = ('"id":"%s"' % app).encode("utf-8", "replace")
        self._first_port = port
        self._attempts = 0
        self._next_attempt = 0.0
        self._socket: Optional[socket.socket] = None
        self._sent = False
        self._deadline = 0.0
        self._response = b""

    @property
    def gave_up(self) -> bool:
        """Whether the search has ended without success."""
        return self._socket is None and self._attempts >= _MAX_TRIES

    def poll(self) -> Optional[str]:
        """Continue the search. Return the address once it is found."""
        try:
            if self._socket is None:
                self._connect()
            if self._socket is not None and self._read_response(self._socket):
                port = self._port()
                self.close()
                return "http://%s:%d" % (self._host, port)
        except OSError:
            self._try_next_port()
        return None

    def _port(self) -> int:
        return self._first_port + self._attempts % _PORTS

    def _connect(self) -> None:
        if self.gave_up or time.monotonic() < self._next_attempt:
            return
        self._sent, self._response, self._deadline = False, b"", time.monotonic() + _TIMEOUT
        self._socket = sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex((_LOOPBACK, self._port()))

    def _read_response(self, sock: socket.socket) -> bool:
        """Return whether the application's page responded. Raise OSError for any other response."""
        if not self._sent:
            if not select.select([], [sock], [], 0)[1]:
                self._check_deadline()
                return False
            sock.sendall(_REQUEST)  # fails if no process listens on the port
            self._sent = True
        while select.select([sock], [], [], 0)[0]:
            data = sock.recv(65536)
            self._response += data
            if self._marker in self._response.replace(b" ", b""):
                return True
            if not data or len(self._response) > _MAX_RESPONSE:
                raise OSError("another page")
        self._check_deadline()
        return False

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise OSError("no answer")

    def _try_next_port(self) -> None:
        self.close()
        self._attempts += 1
        self._next_attempt = time.monotonic() + _PAUSE if self._attempts % _PORTS == 0 else 0.0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
