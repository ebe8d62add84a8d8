"""Messages over a pair of pipes: eight bytes of lengths, a JSON object, a body. The same code at both ends.

Whatever the other end sends, this end reads a bounded amount: lengths are checked before anything is read for them.
"""

from __future__ import annotations

import json
import os
import select
import time
import zlib

from .untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple, Union

    Bytes = Union[bytes, bytearray, memoryview]
    Message = Dict[str, Any]

MAX_JSON = 8 * 1024 * 1024
MAX_BODY = 4 * 1024 * 1024 + 64 * 1024
CHUNK = 4 * 1024 * 1024  # of a file, in one frame
SLOWEST = 1024  # bytes a second: an end that sends less for long counts as one that sends nothing
_STEP = 64 * 1024
_WAITS = os.name != "nt"  # Windows cannot wait for a pipe: there a read lasts as long as it lasts


class FrameError(ValueError):
    """What came is not a message of ours."""


class Closed(FrameError):
    """The other end is gone."""


class Silent(FrameError):
    """The other end says nothing for too long."""


class Pipe:
    """Messages to and from another process. ``source`` and ``sink`` are descriptors."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._left = b""  # read, and not part of any message yet
        self._since: Optional[Tuple[float, int]] = None  # seconds and bytes when the message began
        self.read_bytes = 0
        self.waited = 0.0  # seconds; what this end does meanwhile does not count

    def send(self, message: Message, body: Bytes = b"", patience: Optional[float] = None) -> None:
        """``patience`` is how long the other end may take nothing; it counts where ``sink`` does not block."""
        text = json.dumps(message, separators=(",", ":")).encode("ascii")
        if len(text) > MAX_JSON or len(body) > MAX_BODY:
            raise FrameError("message too long: %d and %d bytes" % (len(text), len(body)))
        head = len(text).to_bytes(4, "big") + len(body).to_bytes(4, "big") + text
        try:
            if len(body) <= _STEP:
                _write(self._sink, head + bytes(body), patience)
            else:
                _write(self._sink, head, patience)
                _write(self._sink, body, patience)
        except OSError as error:
            raise Closed("the connection was closed (%s)" % error.strerror) from None

    def write(self, data: Bytes, patience: Optional[float]) -> None:
        """Bytes that are no message: before the first one."""
        try:
            _write(self._sink, data, patience)
        except OSError as error:
            raise Closed("the connection was closed (%s)" % error.strerror) from None

    def receive(self, patience: Optional[float] = None) -> Tuple[Message, bytes]:
        """The next message. ``patience`` is how long it may be silent, and how far a slow one may fall behind."""
        self._since = self.waited, self.read_bytes
        head = self._take(8, patience)
        sizes = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if sizes[0] > MAX_JSON or sizes[1] > MAX_BODY or sizes[0] < 2:
            raise FrameError("invalid message lengths %d and %d" % sizes)
        text = self._take(sizes[0], patience)
        body = self._take(sizes[1], patience) if sizes[1] else b""
        try:
            message = parse_json(text)
        except ValueError as error:
            raise FrameError("message is not JSON: %s" % error) from None
        if not isinstance(message, dict):
            raise FrameError("message is not a JSON object")
        return message, body

    def ready(self, seconds: Optional[float]) -> bool:
        """Whether something to read is there, or the other end is gone; waits for it."""
        return bool(self._left) or _readable(self._source, seconds)

    def skip_to(self, mark: bytes, limit: int, patience: Optional[float]) -> Tuple[bytes, bool]:
        """Read past ``mark``; what stood before it, and whether it came at all."""
        seen = bytearray(self._left)
        self._left = b""
        self._since = None  # a login may be slow
        start = 0
        while True:
            found = seen.find(mark, start)
            if found >= 0:
                self._left = bytes(seen[found + len(mark) :])
                return bytes(seen[:found]), True
            if len(seen) > limit:
                return bytes(seen[:limit]), False
            start = max(0, len(seen) - len(mark))
            try:
                seen += self._read(_STEP, patience)
            except Closed:
                return bytes(seen), False

    def _take(self, size: int, patience: Optional[float]) -> bytes:
        left = self._left
        if len(left) >= size:
            self._left = left[size:]
            return left[:size]
        if size <= _STEP:
            while len(left) < size:
                left += self._read(_STEP, patience)
            self._left = left[size:]
            return left[:size]
        return self._take_long(size, patience)

    def _take_long(self, size: int, patience: Optional[float]) -> bytes:
        """Straight into place, without a copy for each part."""
        whole = bytearray(size)
        view = memoryview(whole)
        done = len(self._left)
        view[:done] = self._left
        self._left = b""
        while done < size:
            self._wait(patience)
            count = _read_into(self._source, view[done:])
            if not count:
                raise Closed("the connection was closed")
            done += count
            self.read_bytes += count
        return bytes(whole)

    def _read(self, size: int, patience: Optional[float]) -> bytes:
        self._wait(patience)
        try:
            part = os.read(self._source, size)
        except OSError as error:
            raise Closed("the connection was closed (%s)" % error.strerror) from None
        if not part:
            raise Closed("the connection was closed")
        self.read_bytes += len(part)
        return part

    def _wait(self, patience: Optional[float]) -> None:
        if not _WAITS or patience is None:
            return
        begun = time.monotonic()
        if not _readable(self._source, patience):
            raise Silent("no data for %g s" % patience)
        self.waited += min(time.monotonic() - begun, patience)  # this process may have been stopped meanwhile
        if self._since is not None:
            self.check_pace(patience, self._since[0], self.read_bytes - self._since[1])

    def check_pace(self, patience: float, since: float, count: int) -> None:
        """Raise Silent if this number of bytes is too small for the time waited since then."""
        if self.waited - since > patience + count / SLOWEST:
            raise Silent("%d bytes in %g s" % (count, self.waited - since))


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
        raise Closed("the connection was closed (%s)" % error.strerror) from None
    view[: len(part)] = part
    return len(part)


def _write(descriptor: int, data: Bytes, patience: Optional[float]) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            if not poll.poll(None if patience is None else int(patience * 1000)):
                raise Silent("no data was accepted for %g s" % (patience or 0)) from None


def ranges(numbers: List[int]) -> List[List[int]]:
    """Rising numbers as [first, count]: most of a project's files are missing together, or none is."""
    found: List[List[int]] = []
    for number in numbers:
        if found and found[-1][0] + found[-1][1] == number:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


def inflate(packed: bytes) -> bytes:
    """The content of a compressed frame, which is never more than a frame may hold."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, MAX_BODY)
    except zlib.error as error:
        raise FrameError("a compressed frame is damaged: %s" % error) from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise FrameError("a compressed frame is too long or cut short")
    return data
