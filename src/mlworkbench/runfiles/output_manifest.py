"""The list of a run's outputs, read entry by entry: it may be long, and it may come from another machine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import HistoryError
from ..remote.outputs import each_output
from ..remote.shared.layout import RunFolder
from ..remote.shared.output_kinds import UNCOLLECTED
from ..remote.shared.tree import NEW, READ, native, portable

_CHUNK = 1 << 18
_LONGEST = 1 << 20  # of one entry
_LARGEST = 1 << 63  # of one file
_SHA256 = re.compile(r"[0-9a-f]{64}")
LINK = "link"
# Kinds of entries that stand for a file with content.
_FILES = ("file", "changed while read", "not hashed")


@dataclass(frozen=True, slots=True)
class Output:
    """One entry of ``outputs.json``."""

    path: str
    size: int
    sha256: str | None  # None: it was never read to the end, or changed meanwhile
    kind: str
    to: str = ""

    @property
    def is_file(self) -> bool:
        return self.kind in _FILES

    @property
    def is_collected(self) -> bool:
        """Whether it is an output: a file, or a link to one."""
        return self.kind not in UNCOLLECTED

    @property
    def described(self) -> str:
        """What it is, for a message."""
        return f"{self.kind}: {self.to}" if self.to else self.kind


Outputs = Callable[[], Iterator[Output]]


def outputs_of(run: RunFolder) -> tuple[Outputs, bool]:
    """The outputs, as often as asked for; and whether they are on record, or only what lies there now."""
    if os.path.isfile(run.manifest):
        return lambda: read_outputs(run.manifest), True
    # Still running, or its supervisor was killed: listed without digests.
    return lambda: (_entry(one, "the folder") for one in each_output(run.outputs, lambda: True)), False


def read_outputs(path: str) -> Iterator[Output]:
    """Each entry of the list, without holding all of them."""
    for one in _objects(path):
        yield _entry(one, path)


class ListWriter:
    """Writes such a list, entry by entry. It is whole when it was closed; use it where nobody looks before."""

    def __init__(self, path: str) -> None:
        self._file = open(os.open(path, NEW, 0o600), "w", encoding="ascii")
        self._file.write('{"outputs": [')
        self._between = ""

    def add(self, one: Output) -> None:
        entry = {**asdict(one), "path": portable(one.path), "to": portable(one.to)}
        self._file.write(self._between + json.dumps(entry))
        self._between = ", "

    def __enter__(self) -> ListWriter:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.write("]}")


def _entry(one: Any, path: str) -> Output:
    try:
        name, size, sha256, kind, to = one["path"], one["size"], one["sha256"], one["kind"], one.get("to", "")
        if not (isinstance(name, str) and isinstance(kind, str) and isinstance(to, str)):
            raise ValueError(name)
        if type(size) is not int or not 0 <= size < _LARGEST:
            raise ValueError(size)
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise ValueError(sha256)
        name, to = native(name), native(to)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HistoryError(f"{path} contains an invalid entry: {ascii(error)[:200]}") from None
    return Output(name, size, sha256 if kind == "file" else None, kind, to)


def _objects(path: str) -> Iterator[Any]:
    """The objects of ``{"outputs": [{…}, {…}]}``, read in pieces."""
    with open(os.open(path, READ), encoding="ascii", errors="surrogateescape") as file:
        text = file.read(_CHUNK)
        head, bracket, text = text.partition("[")
        if not bracket or head.replace(" ", "") != '{"outputs":':
            raise HistoryError(f"{path} is damaged: it is not a list of outputs")
        while True:
            found, end = _decode(text)
            yield from found
            text = text[end:]
            if text.startswith("]"):
                return
            piece = file.read(_CHUNK)
            text += piece
            if not piece or len(text) > _LONGEST + _CHUNK:
                raise HistoryError(f"{path} is damaged: it is truncated")


def _decode(text: str) -> tuple[list[Any], int]:
    """All whole objects, and where the rest begins. One that is cut is tried again with the next piece."""
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at = 0
    while True:
        while text[at : at + 1] in (",", " ", "\n"):
            at += 1
        if not text.startswith("{", at):
            return found, at
        try:
            one, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, at
        found.append(one)
