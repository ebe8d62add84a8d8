r"""A metrics file that a supervisor writes, and that the next one goes on with: nothing lost, nothing twice.

The lines are those of the in-run library, and every one tells where it came from:

{"k": "source", "d": {"number": 0, "name": "logs/train/events.out.tfevents…", "prefix": "train/"}, "t": …}
{"n": "train/loss", "v": 0.5, "t": 1763190000.1, "s": 3, "o": [0, 4711, 1]}

{"k": "tag", "d": {"name": "tensorboard.left-out", "value": "…"}, "t": …}

"o": of source 0, from what begins at byte 4711, the second value. So the last whole line says how far it got.
"""

from __future__ import annotations

import errno
import json
import os
import time

from ..shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_FLAGS |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_CHUNK = 1024 * 1024
_PENDING = 1024 * 1024  # characters that wait for write(); a supervisor has to stay small
_MOST_SOURCES = 2000
_LARGEST = 1 << 30  # bytes of a file that is read again: some seconds
_SOURCE, _ORIGIN = b'{"k": "source"', b'"o": ['


class Source:
    """One file that points come from, and how far it was read."""

    def __init__(self, number: int, name: str, prefix: str = "") -> None:
        self.number = number
        self.name = name
        self.prefix = prefix
        self.at = 0  # where the next thing begins that was not written yet
        self.done = 0  # values of it that were
        self.broken = False  # no more comes of it


class Appended:
    """The file, and the sources that are known. Raises OSError where the disk refuses: call again later."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: Optional[int] = None
        self._lines: List[str] = []
        self._pending = 0  # characters of these
        self._numbered: Dict[int, Source] = {}
        self.sources: Dict[str, Source] = {}

    def open(self) -> None:
        """Read what is there; needed before anything else, and again after an error."""
        if self._fd is not None:
            return
        self.sources, self._numbered, self._lines, self._pending = {}, {}, [], 0
        os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            if os.fstat(descriptor).st_size > _LARGEST:
                # A script can write there, too, and reading it would keep the supervisor from everything else.
                raise OSError(errno.EFBIG, "too large to be read again")
            if self._read(descriptor):
                os.write(descriptor, b"\n")  # a writer was killed in the middle of a line
        except BaseException:
            os.close(descriptor)
            raise
        self._fd = descriptor

    def add_source(self, name: str, prefix: str = "") -> Source:
        source = self.sources[name] = Source(len(self.sources), name, prefix)
        self._numbered[source.number] = source
        data = {"number": source.number, "name": name, "prefix": prefix}
        self._add('{"k": "source", "d": %s, "t": %.6f}\n' % (json.dumps(data), time.time()))
        return source

    def add_tag(self, name: str, value: str) -> None:
        """A tag of the run, as a script sets one: a later value of the same name replaces it."""
        data = {"name": name, "value": value}
        self._add('{"k": "tag", "d": %s, "t": %.6f}\n' % (json.dumps(data), time.time()))

    def add(self, source: Source, name: str, value: "Union[int, float]", when: float, step: "Optional[int]") -> None:
        """A value of what begins at ``source.at``; the caller moves on with ``source.at`` and ``source.done``."""
        told = '{"n": %s, "v": %s, "t": %.6f' % (json.dumps(source.prefix + name), _value(value), when)
        if step is not None:
            told += ', "s": %d' % step
        self._add('%s, "o": [%d, %d, %d]}\n' % (told, source.number, source.at, source.done))

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._pending += len(line)
        if self._pending >= _PENDING:
            self.write()

    def write(self) -> None:
        """Write what was added. Long additions are written before that, too."""
        if not self._lines or self._fd is None:
            return
        data = "".join(self._lines).encode("ascii")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BaseException:
            self.close()  # only the file knows how far it came
            raise
        self._lines, self._pending = [], 0

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self, descriptor: int) -> bool:
        """Whether the last line is not whole. Of each source only its last one counts: the others are not parsed."""
        last: Dict[bytes, bytes] = {}
        rest = b""
        while True:
            chunk = os.read(descriptor, _CHUNK)
            *lines, rest = (rest + chunk).split(b"\n") if chunk else [rest, b""] if rest else [b""]
            for line in lines:
                at = line.rfind(_ORIGIN)
                if line.startswith(_SOURCE):
                    self._take(line)
                elif at > 0 and line.endswith(b"]}") and len(last) < _MOST_SOURCES:
                    last[line[at : line.find(b",", at)]] = line
            if not chunk:
                torn = bool(lines)
                break
            rest = rest if len(rest) < _CHUNK else b"?"  # no line of ours is so long
        for line in last.values():
            self._take(line)
        return torn

    def _take(self, line: bytes) -> None:
        try:
            self._understand(parse_json(line.decode("ascii")))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            pass  # what a killed writer leaves

    def _understand(self, line: "Dict[str, Any]") -> None:
        if line.get("k") == "source":
            data = line["d"]
            source = Source(int(data["number"]), str(data["name"]), str(data["prefix"]))
            if len(self.sources) < _MOST_SOURCES:
                self.sources[source.name] = self._numbered[source.number] = source
        else:
            number, at, nth = line["o"]
            source = self._numbered[number]
            source.at, source.done = int(at), int(nth) + 1


def _value(value: "Union[int, float]") -> str:
    if value - value == 0:
        return repr(value)
    return '"%s", "f": 1' % ("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
