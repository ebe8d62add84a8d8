"""Patience with those who connect: they must say what they want within a time and a size, before anybody knows them."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SECONDS = 20.0  # from the first byte of a request, or from the connecting, to the end of its headers; for its trailers
LARGEST = 64 * 1024  # bytes of its headers, and of its trailers


class Patient(HttpToolsProtocol):
    """uvicorn's own waits for ever, and keeps whatever comes: any program on this machine could fill its memory."""

    _waiting: asyncio.TimerHandle | None = None
    _came = 0
    _in_headers = True
    _empty_chunk = False  # the last one of a body is, and trailers follow it
    _whole = True  # the request that came last
    _answered = False  # it was, before it was whole
    _ignoring = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._ignoring:
            return
        if self._in_headers or self._empty_chunk:
            self._came += len(data)
            if self._came > LARGEST + len(data):  # what came before this is all headers, or all trailers
                self._part()
                return
        super().data_received(data)
        if self._empty_chunk:
            self._wait()

    def on_message_begin(self) -> None:
        if self.pipeline:
            # One request may wait for its turn: clients can be quicker than the end of the answer before. No more.
            self._ignoring = True
            self.cycle.keep_alive = False
            return
        super().on_message_begin()
        self._whole, self._in_headers, self._came = False, True, 0
        self._wait()

    def on_url(self, url: bytes) -> None:
        if not self._ignoring:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._ignoring and self._in_headers:  # nobody reads trailers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._ignoring:
            self._calm()
            self._in_headers = self._answered = False
            super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._empty_chunk, self._came = True, 0

    def on_body(self, body: bytes) -> None:
        if self._ignoring:
            return
        if self._empty_chunk and not self._answered:
            self._calm()
        self._empty_chunk = False
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._ignoring:
            return
        self._calm()
        self._whole, self._empty_chunk = True, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self._whole and not self._in_headers:
            self._answered = True
            self._wait()  # for the rest, of any size: whoever sends it reads the answer only then

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """From now on, unless it is waited for something already."""
        if self._waiting is None and not self.transport.is_closing():
            self._waiting = self.loop.call_later(SECONDS, self._part)

    def _calm(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _part(self) -> None:
        self._calm()
        if not self.transport.is_closing():
            self.transport.abort()
