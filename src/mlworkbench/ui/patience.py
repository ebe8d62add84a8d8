"""Patience with those who connect: they must say what they want within a time and a size, before anybody knows them."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SECONDS = 20.0  # from the first byte of a request, or from the connecting, to the end of its headers
LARGEST = 64 * 1024  # bytes of its headers


class Patient(HttpToolsProtocol):
    """uvicorn's own waits for ever, and keeps whatever comes: any program on this machine could fill its memory."""

    _waiting: asyncio.TimerHandle | None = None
    _came = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._waiting is not None:
            self._came += len(data)
            if self._came > LARGEST + len(data):  # what came before this is all headers
                self._part()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._waiting is None:
            self._wait()

    def on_headers_complete(self) -> None:
        self._calm()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._came = 0
        self._waiting = self.loop.call_later(SECONDS, self._part)

    def _calm(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _part(self) -> None:
        self._calm()
        if not self.transport.is_closing():
            self.transport.abort()
