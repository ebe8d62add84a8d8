"""Cache of the last snapshot of a project, so that only changed files are read again."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, TypedDict

from ..remote.shared.folder_tree import NEW
from ..remote.shared.untrusted_json import parse_json

_VERSION = 4  # also increased when ignore_rules.py changes, because its decisions are cached

# [size, mtime_ns, ctime_ns, inode, mode, sha256]: a plain list for speed, because a snapshot compares about ten
# thousand of them. mtime is None if the file was too recent to be trusted next time.
FileRecord = list[Any]


class Folder(TypedDict):
    """A project folder as of the last scan."""

    files: dict[str, FileRecord]
    links: dict[str, str]
    folders: list[str]
    left: dict[str, str]  # name (folders end with "/", special files with "//") → why it was excluded
    rules: dict[str, str]  # ignore file → its content, decoded as latin-1


class Record(TypedDict):
    """The result of the latest snapshot of a project."""

    version: int
    project: list[str]
    snapshot: str
    count: int
    size: int
    notes: list[str]
    folders: dict[str, Folder]


def load_record(path: Path, project: list[str]) -> Record | None:
    """Return the record if it is valid and belongs to this project. A damaged record is ignored."""
    try:
        with open(path, "rb") as file:
            check, _, body = file.read().partition(b"\n")
        if int(check, 16) != zlib.crc32(body):
            return None
        record: Record = parse_json(body)
        return record if record["version"] == _VERSION and record["project"] == project else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def new_record(project: list[str], snapshot: str, folders: dict[str, Folder], notes: list[str]) -> Record:
    files = [file for folder in folders.values() for file in folder["files"].values()]
    return Record(
        version=_VERSION,
        project=project,
        snapshot=snapshot,
        count=len(files),
        size=sum(file[0] for file in files),
        notes=notes,
        folders=folders,
    )


def save_record(path: Path, record: Record) -> None:
    """Save the record. Raises OSError, which the caller can ignore."""
    os.makedirs(path.parent, 0o700, exist_ok=True)
    body = json.dumps(record, separators=(",", ":")).encode("ascii")
    write_atomically(os.fspath(path), b"%08x\n%s" % (zlib.crc32(body), body))


def write_atomically(path: str, data: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    part = f"{path}.{os.getpid()}-{os.urandom(6).hex()}"
    try:
        with open(os.open(part, NEW, 0o600), "wb") as file:
            file.write(data)
        os.replace(part, path)
    except BaseException:
        try:
            os.unlink(part)
        except OSError:
            pass
        raise
