"""Messages over a pair of pipes: eight bytes of lengths, a JSON object, and a body.

Both ends use this code. Lengths are checked before anything is read, so that neither end can make
the other read without limit.
"""

from __future__ import annotations

import json
import os
import select
import time
import zlib

from .untrusted_json import parse_json

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple, Union

    Bytes = Union[bytes, bytearray, memoryview]
    Message = Dict[str, Any]

MAX_JSON = 8 * 1024 * 1024
MAX_BODY = 4 * 1024 * 1024 + 64 * 1024
CHUNK = 4 * 1024 * 1024  # maximum file bytes per frame
MIN_RATE = 1024  # bytes per second: a lower rate for a long time counts as no data
_READ_SIZE = 64 * 1024
_CAN_POLL = os.name != "nt"  # Windows cannot poll a pipe: reads have no timeout there


class FrameError(ValueError):
    """A communication error: an invalid message, or a problem that a subclass describes."""


class ConnectionClosed(FrameError):
    """A connection that the other end closed."""


class ConnectionTimeout(FrameError):
    """A connection whose other end did not respond in time."""


class Pipe:
    """A message channel to another process. ``source`` and ``sink`` are descriptors."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._buffer = b""  # received data that is not yet part of a message
        self._message_start: Optional[Tuple[float, int]] = None  # wait time and bytes read when the message began
        self.read_bytes = 0
        self.wait_time = 0.0  # seconds spent waiting for data, excluding processing

    def send(self, message: Message, body: Bytes = b"", timeout: Optional[float] = None) -> None:
        """Send a message.

        If ``sink`` is non-blocking, ``timeout`` limits how long the other end may accept no data.
        """
        text = json.dumps(message, separators=(",", ":")).encode("ascii")
        if len(text) > MAX_JSON or len(body) > MAX_BODY:
            raise FrameError("message too long: %d and %d bytes" % (len(text), len(body)))
        head = len(text).to_bytes(4, "big") + len(body).to_bytes(4, "big") + text
        try:
            if len(body) <= _READ_SIZE:
                _write(self._sink, head + bytes(body), timeout)
            else:
                _write(self._sink, head, timeout)
                _write(self._sink, body, timeout)
        except OSError as error:
            raise ConnectionClosed("the connection was closed (%s)" % error.strerror) from None

    def write(self, data: Bytes, timeout: Optional[float]) -> None:
        """Write raw bytes, before the first message."""
        try:
            _write(self._sink, data, timeout)
        except OSError as error:
            raise ConnectionClosed("the connection was closed (%s)" % error.strerror) from None

    def receive(self, timeout: Optional[float] = None) -> Tuple[Message, bytes]:
        """Return the next message.

        ``timeout`` limits how long the other end may send nothing, and how far a slow message may fall
        behind the minimum rate.
        """
        self._message_start = self.wait_time, self.read_bytes
        head = self._read_exactly(8, timeout)
        sizes = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if sizes[0] > MAX_JSON or sizes[1] > MAX_BODY or sizes[0] < 2:
            raise FrameError("invalid message lengths %d and %d" % sizes)
        text = self._read_exactly(sizes[0], timeout)
        body = self._read_exactly(sizes[1], timeout) if sizes[1] else b""
        try:
            message = parse_json(text)
        except ValueError as error:
            raise FrameError("message is not JSON: %s" % error) from None
        if not isinstance(message, dict):
            raise FrameError("message is not a JSON object")
        return message, body

    def is_ready(self, seconds: Optional[float]) -> bool:
        """Wait for data or until the other end is closed. Return False after a timeout."""
        return bool(self._buffer) or _readable(self._source, seconds)

    def skip_to(self, marker: bytes, limit: int, timeout: Optional[float]) -> Tuple[bytes, bool]:
        """Read up to and including ``marker``. Return the preceding data, and whether the marker was found."""
        data = bytearray(self._buffer)
        self._buffer = b""
        self._message_start = None  # the minimum rate does not apply, because a login may be slow
        start = 0
        while True:
            index = data.find(marker, start)
            if index >= 0:
                self._buffer = bytes(data[index + len(marker) :])
                return bytes(data[:index]), True
            if len(data) > limit:
                return bytes(data[:limit]), False
            start = max(0, len(data) - len(marker))
            try:
                data += self._read(_READ_SIZE, timeout)
            except ConnectionClosed:
                return bytes(data), False

    def _read_exactly(self, size: int, timeout: Optional[float]) -> bytes:
        data = self._buffer
        if len(data) >= size:
            self._buffer = data[size:]
            return data[:size]
        if size <= _READ_SIZE:
            while len(data) < size:
                data += self._read(_READ_SIZE, timeout)
            self._buffer = data[size:]
            return data[:size]
        return self._read_large(size, timeout)

    def _read_large(self, size: int, timeout: Optional[float]) -> bytes:
        """Read a large block directly into its buffer without copying each part."""
        data = bytearray(size)
        view = memoryview(data)
        done = len(self._buffer)
        view[:done] = self._buffer
        self._buffer = b""
        while done < size:
            self._wait(timeout)
            count = _read_into(self._source, view[done:])
            if not count:
                raise ConnectionClosed("the connection was closed")
            done += count
            self.read_bytes += count
        return bytes(data)

    def _read(self, size: int, timeout: Optional[float]) -> bytes:
        self._wait(timeout)
        try:
            part = os.read(self._source, size)
        except OSError as error:
            raise ConnectionClosed("the connection was closed (%s)" % error.strerror) from None
        if not part:
            raise ConnectionClosed("the connection was closed")
        self.read_bytes += len(part)
        return part

    def _wait(self, timeout: Optional[float]) -> None:
        if not _CAN_POLL or timeout is None:
            return
        started = time.monotonic()
        if not _readable(self._source, timeout):
            raise ConnectionTimeout("no data for %g s" % timeout)
        self.wait_time += min(time.monotonic() - started, timeout)  # limited: this process may have been suspended
        if self._message_start is not None:
            self.check_rate(timeout, self._message_start[0], self.read_bytes - self._message_start[1])

    def check_rate(self, timeout: float, since: float, count: int) -> None:
        """Raise ConnectionTimeout if ``count`` bytes are too few for the wait time since ``since``."""
        if self.wait_time - since > timeout + count / MIN_RATE:
            raise ConnectionTimeout("%d bytes in %g s" % (count, self.wait_time - since))


def _readable(descriptor: int, seconds: Optional[float]) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([descriptor], [], [], seconds)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(None if seconds is None else max(0, int(seconds * 1000))))


def _read_into(descriptor: int, view: memoryview) -> int:
    try:
        if hasattr(os, "readv"):
            return os.readv(descriptor, [view])
        part = os.read(descriptor, len(view))
    except OSError as error:
        raise ConnectionClosed("the connection was closed (%s)" % error.strerror) from None
    view[: len(part)] = part
    return len(part)


def _write(descriptor: int, data: Bytes, timeout: Optional[float]) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            if not poll.poll(None if timeout is None else int(timeout * 1000)):
                raise ConnectionTimeout("no data was accepted for %g s" % (timeout or 0)) from None


def ranges(numbers: List[int]) -> List[List[int]]:
    """Return ascending numbers as [first, count] ranges.

    This is compact, because usually either most files of a project are missing, or none.
    """
    result: List[List[int]] = []
    for number in numbers:
        if result and result[-1][0] + result[-1][1] == number:
            result[-1][1] += 1
        else:
            result.append([number, 1])
    return result


def inflate(compressed: bytes) -> bytes:
    """Return the content of a compressed frame, limited to the maximum frame size."""
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(compressed, MAX_BODY)
    except zlib.error as error:
        raise FrameError("a compressed frame is damaged: %s" % error) from None
    if decompressor.unconsumed_tail or not decompressor.eof:
        raise FrameError("a compressed frame is too long or cut short")
    return data
