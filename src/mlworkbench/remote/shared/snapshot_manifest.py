"""The two lists on disk: what a snapshot consists of, and what of it was placed in a working folder."""

from __future__ import annotations

import errno
import json
import os

from .tree import NEW, UTF8, native, portable
from .untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

VERSION = 1


def read_manifest(path: str) -> Dict[str, Any]:
    """The list of a snapshot's files, each path checked: it may come from another machine."""
    try:
        with open(path, "rb") as file:
            manifest = _renamed(parse_json(file.read()), native)
        files, links, folders = manifest["files"], manifest["links"], manifest["folders"]
        paths = [file[0] for file in files] + [link[0] for link in links] + folders
        for file in files:
            _check_file(file)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        os.unlink(path)  # so that the next submit stores it anew
        text = "the snapshot's file list was damaged (%s) and has been removed; submit again" % error
        raise OSError(errno.EBADMSG, text, path) from None
    for name in paths:
        if not _inside(name):
            raise OSError(errno.EBADMSG, "the snapshot contains a file outside the working folder: %a" % name, path)
    return manifest


def _check_file(file: List[Any]) -> None:
    path, sha256, size, mode = file
    if mode not in (0o644, 0o755) or len(sha256) != 64 or not sha256.isalnum() or not isinstance(size, int):
        raise ValueError("invalid entry %a" % path)


def _inside(path: str) -> bool:
    parts = path.split("/")
    return "\0" not in path and parts[0] != "outputs" and not {"", ".", ".."}.intersection(parts)


def read_record(path: str) -> Optional[Dict[str, Any]]:
    """What was placed; None when there is no record or it is damaged."""
    try:
        with open(path, "rb") as file:
            placed = parse_json(file.read())
        return _renamed(placed, native) if placed["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_record(path: str, placed: Dict[str, Any]) -> None:
    with open(os.open(path + ".new", NEW, 0o600), "wb") as file:
        file.write(json.dumps(_renamed(placed, portable), separators=(",", ":")).encode("ascii"))
    os.rename(path + ".new", path)


def _renamed(record: Dict[str, Any], rename: Callable[[str], str]) -> Dict[str, Any]:
    if UTF8:
        return record
    files = record["files"]
    if isinstance(files, dict):
        files = {rename(path): known for path, known in files.items()}
    else:
        files = [[rename(path), *rest] for path, *rest in files]
    links = [[rename(path), rename(text)] for path, text in record["links"]]
    return {**record, "files": files, "links": links, "folders": [rename(path) for path in record["folders"]]}
