r"""Append metrics to a file that later supervisors continue, without losses or duplicates.

The lines have the format of the in-run library, and each one contains its origin:

{"k": "source", "d": {"number": 0, "name": "logs/train/events.out.tfevents…", "prefix": "train/"}, "t": …}
{"n": "train/loss", "v": 0.5, "t": 1763190000.1, "s": 3, "o": [0, 4711, 1]}

{"k": "series", "d": {"number": 0, "kind": "metric", "tag": "loss", "name": "train/loss"}, "t": …}
{"k": "tag", "d": {"name": "tensorboard.left-out", "value": "…"}, "t": …}

"series" is the name that was chosen for a tag. "o" is the origin: source 0, the record or line at byte 4711, its second
value. The last complete line of a source shows up to which position the source was read.
"""

from __future__ import annotations

import errno
import json
import os
import time

from ..shared.untrusted_json import parse_json
from .folder_prefixes import NameRegistry, list_prefixes

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple, Union

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_FLAGS |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_CHUNK = 1024 * 1024
_MAX_PENDING = 1024 * 1024  # maximum characters buffered before write(), to limit a supervisor's memory use
_MAX_SOURCES = 2000
_MAX_SIZE = 1 << 30  # maximum bytes of an existing file: open() reads all of it, which takes seconds
_MAX_RECORDS = 50000  # maximum records of earlier supervisors that are restored
_SOURCE, _ORIGIN = b'{"k": "source"', b'"o": ['
_RESTORED = (b'{"k": "series"', b'{"k": "kept"', b'{"k": "file"')


class Source:
    """A file that contains metrics, and the position up to which it was read."""

    def __init__(self, number: int, name: str, prefix: str = "") -> None:
        self.number = number
        self.name = name
        self.folder = os.path.dirname(name).replace(os.sep, "/")
        self.prefix = prefix  # preferred prefix of the metrics
        self.prefixes = [prefix]  # all possible prefixes
        self.offset = 0  # offset of the next record or line to write
        self.values_done = 0  # values at this offset that are already written
        self.broken = False  # whether the file is damaged and no longer read


class MetricsAppender:
    """The metrics file and its sources.

    If the disk fails, the methods raise OSError and can be called again later.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: Optional[int] = None
        self._lines: List[str] = []
        self._pending = 0  # characters in _lines
        self._by_number: Dict[int, Source] = {}
        self._names = NameRegistry()
        self._folders: Dict[str, int] = {}  # folder of a source → its number
        self.sources: Dict[str, Source] = {}
        self.restored: List[Tuple[str, Dict[str, Any]]] = []  # kind and data of records from earlier supervisors

    def open(self) -> bool:
        """Open the file and read the position of each source. Return whether the file was not open yet.

        This must be called first, and again after an error.
        """
        if self._fd is not None:
            return False
        self.sources, self._by_number, self._lines, self._pending = {}, {}, [], 0
        self._names, self._folders, self.restored = NameRegistry(), {}, []
        os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            if os.fstat(descriptor).st_size > _MAX_SIZE:
                # The script can write to this file, too, and reading a huge file would block the supervisor.
                raise OSError(errno.EFBIG, "too large to be read again")
            if self._read(descriptor):
                os.write(descriptor, b"\n")  # a writer was killed while writing a line
        except BaseException:
            os.close(descriptor)
            raise
        self._fd = descriptor
        return True

    def add_source(self, name: str) -> Source:
        source = Source(len(self.sources), name)
        self._register(source)
        source.prefix = source.prefixes[0]
        self.add_record("source", {"number": source.number, "name": name, "prefix": source.prefix})
        return source

    def _register(self, source: Source) -> None:
        self.sources[source.name] = self._by_number[source.number] = source
        number = self._folders.setdefault(source.folder, len(self._folders) + 1)
        source.prefixes = list_prefixes(source.folder, number, self._folders)

    def name_of(self, source: Source, kind: str, tag: str) -> str:
        """Return the name for a tag of a source. Two folders with the same tag have different names."""
        name = self._names.find(source.folder, kind, tag)
        if name is None:
            name = self._names.choose(source.folder, kind, tag, source.prefixes)
            if self._names.find(source.folder, kind, tag) is not None:
                self.add_record("series", {"number": source.number, "kind": kind, "tag": tag, "name": name})
        return name

    def add_tag(self, name: str, value: str) -> None:
        """Add a tag to the run. A later value for the same name replaces it."""
        self.add_record("tag", {"name": name, "value": value})

    def add_record(
        self, kind: str, data: "Dict[str, Any]", when: "Optional[float]" = None, source: "Optional[Source]" = None
    ) -> None:
        """Add a record that is not a metric of this run, with the current time by default.

        After a kill, the same record may be added again, unless ``source`` is given, as with ``add``.
        """
        line = '{"k": "%s", "d": %s, "t": %.6f' % (kind, json.dumps(data), time.time() if when is None else when)
        self._add(line + (self._origin(source) if source is not None else "}\n"))

    def add_position(self, source: Source) -> None:
        """Record that everything before ``source.offset`` has been read."""
        self._add('{"k": "position", "t": %.6f, "o": [%d, %d, -1]}\n' % (time.time(), source.number, source.offset))

    def add(self, source: Source, name: str, value: "Union[int, float]", when: float, step: "Optional[int]") -> None:
        """Add a value from the record at ``source.offset``.

        The caller advances ``offset`` and ``values_done``.
        """
        line = '{"n": %s, "v": %s, "t": %.6f' % (json.dumps(name), _value(value), when)
        if step is not None:
            line += ', "s": %d' % step
        self._add(line + self._origin(source))

    def _origin(self, source: Source) -> str:
        return ', "o": [%d, %d, %d]}\n' % (source.number, source.offset, source.values_done)

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._pending += len(line)
        if self._pending >= _MAX_PENDING:
            self.write()

    def write(self) -> None:
        """Write the buffered lines. A full buffer is written automatically."""
        if not self._lines or self._fd is None:
            return
        data = "".join(self._lines).encode("ascii")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BaseException:
            self.close()  # open() must read the positions from the file again
            raise
        self._lines, self._pending = [], 0

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self, descriptor: int) -> bool:
        """Read the positions, and return whether the last line is incomplete.

        Only the last line of each source counts.
        """
        last: Dict[bytes, bytes] = {}
        rest = b""
        while True:
            chunk = os.read(descriptor, _CHUNK)
            *lines, rest = (rest + chunk).split(b"\n") if chunk else [rest, b""] if rest else [b""]
            for line in lines:
                position = line.rfind(_ORIGIN)
                if line.startswith(_SOURCE):
                    self._apply_line(line)
                elif line.startswith(_RESTORED):
                    self._restore_line(line)
                elif position > 0 and line.endswith(b"]}") and len(last) < _MAX_SOURCES:
                    last[line[position : line.find(b",", position)]] = line
            if not chunk:
                is_incomplete = bool(lines)
                break
            rest = rest if len(rest) < _CHUNK else b"?"  # drop a line that is longer than any valid line
        for line in last.values():
            self._apply_line(line)
        return is_incomplete

    def _apply_line(self, line: bytes) -> None:
        try:
            self._apply(parse_json(line.decode("ascii")))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError):
            pass  # incomplete line left by a killed writer

    def _restore_line(self, line: bytes) -> None:
        try:
            record = parse_json(line.decode("ascii"))
            kind, data = record["k"], record["d"]
            if kind == "series":
                folder = self._by_number[data["number"]].folder
                self._names.restore(folder, str(data["kind"]), str(data["tag"]), str(data["name"]))
            elif isinstance(data, dict) and len(self.restored) < _MAX_RECORDS:
                self.restored.append((str(kind), data))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            pass  # incomplete line left by a killed writer, or not a line of a supervisor

    def _apply(self, line: "Dict[str, Any]") -> None:
        if line.get("k") == "source":
            data = line["d"]
            source = Source(int(data["number"]), str(data["name"]), str(data["prefix"]))
            if len(self.sources) < _MAX_SOURCES:
                self._register(source)
        else:
            number, offset, index = line["o"]
            source = self._by_number[number]
            source.offset, source.values_done = int(offset), int(index) + 1


def _value(value: "Union[int, float]") -> str:
    if value - value == 0:
        return repr(value)
    return '"%s", "f": 1' % ("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
