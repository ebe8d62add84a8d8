"""Records in a run's metric files that the index does not contain: datasets, logged models, packages."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from ..model import JsonDict
from ..remote.shared.folder_tree import READ
from ..remote.shared.layout import RunFolder
from ..remote.shared.untrusted_json import parse_json

_MAX_LINE = 1 << 20  # bytes
_MAX_PACKAGES = 5000
_MAX_NAME = 200  # characters


def read_records(folder: RunFolder, *kinds: str) -> Iterator[tuple[str, JsonDict]]:
    """Yield the kind and data of each record of these kinds, in the order of each file."""
    marks = [f'"{kind}"'.encode() for kind in kinds]
    try:
        names = sorted(os.listdir(folder.metrics))
    except OSError:
        return
    for name in names:
        try:
            with open_plain(os.path.join(folder.metrics, name)) as file:
                while line := file.readline(_MAX_LINE):
                    if b'"k"' in line and any(mark in line for mark in marks):
                        yield from _record(line, kinds)
        except OSError:
            continue


def _record(line: bytes, kinds: tuple[str, ...]) -> Iterator[tuple[str, JsonDict]]:
    try:
        record = parse_json(line)
        if record["k"] in kinds and isinstance(record["d"], dict):
            yield record["k"], record["d"]
    except (ValueError, KeyError, TypeError):
        return


def open_plain(path: str) -> BinaryIO:
    """Open a regular file in a run folder; raise OSError if it is not a regular file."""
    handle = os.open(path, READ | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(path)
    return open(handle, "rb")


def read_packages(folder: RunFolder) -> list[tuple[str, str]]:
    """Return the names and versions that the target recorded for an existing Python, sorted by name."""
    try:
        with open_plain(folder.packages) as file:
            line = file.readline(_MAX_LINE)
    except OSError:
        return []
    packages: dict[str, str] = {}
    for _, data in _record(line, ("packages",)):
        listed = data.get("packages")
        for item in listed[:_MAX_PACKAGES] if isinstance(listed, list) else ():
            if isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item):
                packages.setdefault(item[0][:_MAX_NAME], item[1][:_MAX_NAME])
    return sorted(packages.items(), key=lambda item: item[0].lower())
