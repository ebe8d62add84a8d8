"""What is remembered of a project between two snapshots, so that only what changed is looked at again."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, TypedDict

from ..remote.shared.tree import NEW
from ..remote.shared.untrusted import parse_json

_VERSION = 4  # raised, too, when the rules of ignore.py change: decisions by them are remembered

# [size, mtime_ns, ctime_ns, inode, mode, sha256]: a list, because JSON knows no tuples and this is compared
# ten thousand times in a snapshot. mtime is None when the file was too young to be trusted next time.
Known = list[Any]


class Folder(TypedDict):
    """One folder of the project as it was seen."""

    files: dict[str, Known]
    links: dict[str, str]
    folders: list[str]
    left: dict[str, str]  # name (a folder's ends in "/", a special file's in "//") → why it was left out
    rules: dict[str, str]  # ignore file → its text, bytes read as latin-1


class Record(TypedDict):
    """The outcome of the latest snapshot of a project."""

    version: int
    project: list[str]
    snapshot: str
    count: int
    size: int
    notes: list[str]
    folders: dict[str, Folder]


def load_record(path: Path, project: list[str]) -> Record | None:
    """The record, if it is whole and about this project; a damaged one is as good as none."""
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
    files = [known for folder in folders.values() for known in folder["files"].values()]
    return Record(
        version=_VERSION,
        project=project,
        snapshot=snapshot,
        count=len(files),
        size=sum(known[0] for known in files),
        notes=notes,
        folders=folders,
    )


def save_record(path: Path, record: Record) -> None:
    """Raises OSError; the caller can live without."""
    os.makedirs(path.parent, 0o700, exist_ok=True)
    body = json.dumps(record, separators=(",", ":")).encode("ascii")
    write_whole(os.fspath(path), b"%08x\n%s" % (zlib.crc32(body), body))


def write_whole(path: str, data: bytes) -> None:
    """Write a file that is either there with all its bytes or not there; private from its first moment."""
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
