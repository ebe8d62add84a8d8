"""Time and size limits for HTTP requests, which apply before a client is authenticated."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TIMEOUT = 20.0  # seconds to receive the headers after connecting or after a request's first byte, or the trailers
MAX_HEADERS = 64 * 1024  # maximum bytes of the headers, and of the trailers


class BoundedHttpProtocol(HttpToolsProtocol):
    """HTTP protocol with limits.

    uvicorn's protocol waits forever and buffers everything, so any program on this machine could
    exhaust the memory.
    """

    _timer: asyncio.TimerHandle | None = None
    _received = 0
    _in_headers = True
    _empty_chunk = False  # the current chunk has no data yet; if it is the last one, trailers follow
    _request_complete = True  # the last request was received completely
    _response_complete = False  # the response was sent before the request was complete
    _discarding = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._in_headers or self._empty_chunk:
            self._received += len(data)
            if self._received > MAX_HEADERS + len(data):  # this data may contain a body; earlier data cannot
                self._abort()
                return
        super().data_received(data)
        if self._empty_chunk:
            self._start_timer()

    def on_message_begin(self) -> None:
        if self.pipeline:
            # One pipelined request may wait for the current response to end. All later data is discarded.
            self._discarding = True
            self.cycle.keep_alive = False
            return
        super().on_message_begin()
        self._request_complete, self._in_headers, self._received = False, True, 0
        self._start_timer()

    def on_url(self, url: bytes) -> None:
        if not self._discarding:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._discarding and self._in_headers:  # trailers are ignored
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._discarding:
            self._stop_timer()
            self._in_headers = self._response_complete = False
            super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._empty_chunk, self._received = True, 0

    def on_body(self, body: bytes) -> None:
        if self._discarding:
            return
        if self._empty_chunk and not self._response_complete:
            self._stop_timer()
        self._empty_chunk = False
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._discarding:
            return
        self._stop_timer()
        self._request_complete, self._empty_chunk = True, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self._request_complete and not self._in_headers:
            self._response_complete = True
            self._start_timer()  # allow time for the rest: many clients send the whole request before reading

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        """Start the timer unless it is running already."""
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(TIMEOUT, self._abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.abort()
