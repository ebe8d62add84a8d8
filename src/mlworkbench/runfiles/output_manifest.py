"""Read and write lists of outputs entry by entry. A list may be long or come from another machine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import HistoryError
from ..remote.output_scan import iterate_outputs
from ..remote.shared.folder_tree import NEW, READ, native, portable
from ..remote.shared.layout import RunFolder
from ..remote.shared.output_kinds import UNCOLLECTED

_CHUNK = 1 << 18
_MAX_ENTRY = 1 << 20  # maximum bytes of an entry
_MAX_FILE = 1 << 63  # maximum bytes of an output
_MAX_TIME = 1 << 62  # nanoseconds
_SHA256 = re.compile(r"[0-9a-f]{64}")
LINK = "link"
# Kinds of entries that have content.
_FILE_KINDS = ("file", "changed while read", "not hashed")


@dataclass(frozen=True, slots=True)
class Output:
    """An entry in ``outputs.json``."""

    path: str
    size: int
    sha256: str | None  # None if the file was not read completely, or changed meanwhile
    kind: str
    to: str = ""
    modified: int | None = None  # nanoseconds since 1970; recorded for checkpoints only

    @property
    def is_file(self) -> bool:
        return self.kind in _FILE_KINDS

    @property
    def is_collected(self) -> bool:
        """Whether the entry is a collected output: a file, or a link to a file."""
        return self.kind not in UNCOLLECTED

    @property
    def described(self) -> str:
        """Description for a message."""
        return f"{self.kind}: {self.to}" if self.to else self.kind


Outputs = Callable[[], Iterator[Output]]


def outputs_of(run: RunFolder) -> tuple[Outputs, bool]:
    """Return a function that yields the outputs, and whether it reads the recorded list or just the folder."""
    if os.path.isfile(run.manifest):
        return lambda: read_outputs(run.manifest), True
    # The run is active, or its supervisor was killed: the outputs have no recorded digests.
    return lambda: (_parse_entry(entry, "the folder") for entry in iterate_outputs(run.outputs, lambda: True)), False


def read_outputs(path: str) -> Iterator[Output]:
    """Yield the entries of a list without loading the whole list."""
    for entry in _read_objects(path):
        yield _parse_entry(entry, path)


class ManifestWriter:
    """Writer for a list of outputs. The list is incomplete until closed, so use a private folder."""

    def __init__(self, path: str) -> None:
        self._file = open(os.open(path, NEW, 0o600), "w", encoding="ascii")
        self._file.write('{"outputs": [')
        self._separator = ""

    def add(self, output: Output) -> None:
        entry = {**asdict(output), "path": portable(output.path), "to": portable(output.to)}
        del entry["modified"]
        self._file.write(self._separator + json.dumps(entry))
        self._separator = ", "

    def __enter__(self) -> ManifestWriter:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.write("]}")


def _parse_entry(entry: Any, path: str) -> Output:
    try:
        name, size, sha256, kind, to = entry["path"], entry["size"], entry["sha256"], entry["kind"], entry.get("to", "")
        if not (isinstance(name, str) and isinstance(kind, str) and isinstance(to, str)):
            raise ValueError(name)
        if type(size) is not int or not 0 <= size < _MAX_FILE:
            raise ValueError(size)
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise ValueError(sha256)
        modified = entry.get("modified")
        if modified is not None and (type(modified) is not int or abs(modified) > _MAX_TIME):
            raise ValueError(modified)
        name, to = native(name), native(to)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HistoryError(f"{path} contains an invalid entry: {ascii(error)[:200]}") from None
    return Output(name, size, sha256 if kind == "file" else None, kind, to, modified)


def _read_objects(path: str) -> Iterator[Any]:
    """Yield the objects of ``{"outputs": [{…}, {…}]}``, reading in chunks."""
    with open(os.open(path, READ), encoding="ascii", errors="surrogateescape") as file:
        text = file.read(_CHUNK)
        head, bracket, text = text.partition("[")
        if not bracket or head.replace(" ", "") != '{"outputs":':
            raise HistoryError(f"{path} is damaged: it is not a list of outputs")
        while True:
            objects, end = _decode(text)
            yield from objects
            text = text[end:]
            if text.startswith("]"):
                return
            piece = file.read(_CHUNK)
            text += piece
            if not piece or len(text) > _MAX_ENTRY + _CHUNK:
                raise HistoryError(f"{path} is damaged: it is truncated")


def _decode(text: str) -> tuple[list[Any], int]:
    """Return all complete objects and the offset of the rest, to be retried with the next chunk."""
    decoder = json.JSONDecoder()
    objects: list[Any] = []
    at = 0
    while True:
        while text[at : at + 1] in (",", " ", "\n"):
            at += 1
        if not text.startswith("{", at):
            return objects, at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return objects, at
        objects.append(value)
