"""Run folders as the index reads them when it is made anew. One bad folder must not cost the others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ..model import RunSpec
from ..remote.folder import Root, RunFolder
from ..remote.journal import read_json
from ..remote.tree import NOFOLLOW

CHUNK = 4 * 1024 * 1024


def read_folders(root: Root) -> Iterator[RunSpec]:
    """The spec of every run whose folder has a sound one; one at a time, because there may be very many."""
    for name in sorted(os.listdir(root.runs)):
        spec = _spec(root.run(name))
        if spec is not None and spec.id == name:
            yield spec


def _spec(folder: RunFolder) -> RunSpec | None:
    data = read_json(folder.spec)
    try:
        spec = RunSpec.from_json(data) if data else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    sound = spec is not None and isinstance(spec.created, (int, float)) and isinstance(spec.number, int)
    return spec if sound and isinstance(spec and spec.key, str) else None


def read_parts(folder: RunFolder) -> Iterator[dict[str, bytes]]:
    """The bytes of the run's metrics and events in pieces that end at a line; the events come last."""
    names = []
    if os.path.isdir(folder.metrics):
        names = [f"metrics/{name}" for name in sorted(os.listdir(folder.metrics))]
    for name in [*names, "events.jsonl"]:
        for piece in _pieces(os.path.join(folder.path, name)):
            yield {name: piece}


def _pieces(path: str) -> Iterator[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
        rest = b""
        while chunk := file.read(CHUNK):
            rest += chunk
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
                rest = rest[end:]
