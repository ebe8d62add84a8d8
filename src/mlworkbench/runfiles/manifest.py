"""The list of a run's outputs, read entry by entry: it may be long, and it may come from another machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import HistoryError
from ..remote.folder import RunFolder
from ..remote.outputs import list_outputs
from ..remote.tree import READ, native

_CHUNK = 1 << 18
_LONGEST = 1 << 20  # of one entry
LINK = "link"
# Kinds of entries that stand for a file with content.
_FILES = ("file", "changed while read", "not hashed")


@dataclass(frozen=True)
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


Outputs = Callable[[], Iterator[Output]]


def outputs_of(run: RunFolder) -> tuple[Outputs, bool]:
    """The outputs, as often as asked for; and whether they are on record, or only what lies there now."""
    if os.path.isfile(run.manifest):
        return lambda: read_outputs(run.manifest), True
    # Still running, or its supervisor was killed: listed without digests.
    found = [_entry(one, "the folder") for one in list_outputs(run.outputs, lambda: True)]
    return lambda: iter(found), False


def read_outputs(path: str) -> Iterator[Output]:
    """Each entry of the list, without holding all of them."""
    for one in _objects(path):
        yield _entry(one, path)


def _entry(one: Any, path: str) -> Output:
    try:
        name, size, sha256, kind, to = one["path"], one["size"], one["sha256"], one["kind"], one.get("to", "")
        if not (isinstance(name, str) and isinstance(kind, str) and isinstance(to, str) and size >= 0):
            raise ValueError(name)
        if sha256 is not None and (len(sha256) != 64 or not sha256.isalnum()):
            raise ValueError(sha256)
    except (KeyError, TypeError, ValueError) as error:
        raise HistoryError(f"{path} holds an entry that makes no sense: {ascii(error)}") from None
    steady = sha256 if kind == "file" else None
    return Output(native(name), int(size), steady, kind, native(to))


def _objects(path: str) -> Iterator[Any]:
    """The objects of ``{"outputs": [{…}, {…}]}``, read in pieces."""
    with open(os.open(path, READ), encoding="ascii", errors="surrogateescape") as file:
        text = file.read(_CHUNK)
        head, bracket, text = text.partition("[")
        if not bracket or head.replace(" ", "") != '{"outputs":':
            raise HistoryError(f"{path} is damaged: it does not begin as a list of outputs")
        while True:
            found, end = _decode(text)
            yield from found
            text = text[end:]
            if text.startswith("]"):
                return
            piece = file.read(_CHUNK)
            text += piece
            if not piece or len(text) > _LONGEST + _CHUNK:
                raise HistoryError(f"{path} is damaged: it ends within an entry")


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
        except ValueError:
            return found, at
        found.append(one)
