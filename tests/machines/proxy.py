"""A TCP proxy with network faults: latency, limited bandwidth, stalls, cuts, unexpected first bytes."""

from __future__ import annotations

import asyncio
import contextlib
import threading

CHUNK = 16384


class Proxy:
    """Listen on 127.0.0.1:`port` in a separate thread; `latency`, `rate`, `greeting` can change at any time."""

    def __init__(self, address: str, port: int, latency: float = 0, rate: float | None = None) -> None:
        self._to = (address, port)
        self.latency, self.rate = latency, rate
        self.greeting = b""  # Sent to a client before the server's data.
        self.cut_after: int | None = None  # Cut after this number of bytes from clients, over all connections.
        self.carried = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10) and self._server
        self.address = "127.0.0.1"
        self.port = int(self._server.sockets[0].getsockname()[1])

    def stall(self) -> None:
        """Stop forwarding; connections stay open."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def flow(self) -> None:
        self._loop.call_soon_threadsafe(self._flowing.set)

    def cut(self) -> None:
        """Close all connections; accept new ones."""
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join(10)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        started.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _stop(self) -> None:
        assert self._server
        self._server.close()
        self._cut()
        self._loop.stop()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        if self.greeting:
            writer.write(self.greeting)
        await asyncio.gather(self._carry(reader, far_writer, True), self._carry(far_reader, writer, False))
        self._writers -= {writer, far_writer}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool) -> None:
        """Forward one direction. Reading and writing are separate tasks, so that latency does not limit bandwidth."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)
        sender = self._loop.create_task(self._send(queue, writer))
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if up:
                    self.carried += len(data)
                    if self.cut_after is not None and self.carried > self.cut_after:
                        self.cut_after = None
                        self._cut()
                await queue.put((self._loop.time() + self.latency, data))
        await queue.put((self._loop.time() + self.latency, b""))
        await sender

    async def _send(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await self._flowing.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
                if self.rate:
                    await asyncio.sleep(len(data) / self.rate)
        writer.close()
