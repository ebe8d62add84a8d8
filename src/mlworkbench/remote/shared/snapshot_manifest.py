"""Two lists on disk: the files of a snapshot, and the files placed in a working copy."""

from __future__ import annotations

import errno
import json
import os

from .folder_tree import NEW, UTF8, native, portable
from .untrusted_json import parse_json

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set

VERSION = 1
_MAX_TIME = 1 << 62  # nanoseconds since 1970


def read_manifest(path: str, reserved: str = "outputs") -> Dict[str, Any]:
    """Read the list of a snapshot's files and check each path: the list may come from another machine.

    ``reserved``: the name of a folder that must not be in the snapshot, or "".
    """
    try:
        with open(path, "rb") as file:
            manifest = _rename_paths(parse_json(file.read()), native)
        files, links, folders = manifest["files"], manifest["links"], manifest["folders"]
        paths = [file[0] for file in files] + [link[0] for link in links] + folders
        for file in files:
            _check_file(file)
        _check_times(manifest.get("times", {}), {file[0] for file in files}.union(folders))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        os.unlink(path)  # the next submission stores it again
        text = "the snapshot's file list was damaged (%s) and has been removed; submit again" % error
        raise OSError(errno.EBADMSG, text, path) from None
    for name in paths:
        if not _is_safe_path(name, reserved):
            raise OSError(errno.EBADMSG, "the snapshot contains a file outside the working folder: %a" % name, path)
    return manifest


def _check_file(file: List[Any]) -> None:
    path, sha256, size, mode = file
    if mode not in (0o644, 0o755) or len(sha256) != 64 or not sha256.isalnum() or not isinstance(size, int):
        raise ValueError("invalid entry %a" % path)


def _check_times(times: Dict[str, Any], known: Set[str]) -> None:
    for path, time in times.items():
        if path not in known or type(time) is not int or not -_MAX_TIME < time < _MAX_TIME:
            raise ValueError("invalid time of %a" % path)


def _is_safe_path(path: str, reserved: str) -> bool:
    parts = path.split("/")
    return "\0" not in path and (not reserved or parts[0] != reserved) and not {"", ".", ".."}.intersection(parts)


def read_record(path: str) -> Optional[Dict[str, Any]]:
    """Return the record of placed files, or None if it is missing or damaged."""
    try:
        with open(path, "rb") as file:
            placed = parse_json(file.read())
        return _rename_paths(placed, native) if placed["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_record(path: str, placed: Dict[str, Any]) -> None:
    with open(os.open(path + ".new", NEW, 0o600), "wb") as file:
        file.write(json.dumps(_rename_paths(placed, portable), separators=(",", ":")).encode("ascii"))
    os.rename(path + ".new", path)


def _rename_paths(record: Dict[str, Any], rename: Callable[[str], str]) -> Dict[str, Any]:
    if UTF8:
        return record
    files = record["files"]
    if isinstance(files, dict):
        files = {rename(path): entry for path, entry in files.items()}
    else:
        files = [[rename(path), *rest] for path, *rest in files]
    links = [[rename(path), rename(target)] for path, target in record["links"]]
    folders = [rename(path) for path in record["folders"]]
    times = {rename(path): time for path, time in record.get("times", {}).items()}
    return {**record, "files": files, "links": links, "folders": folders, "times": times}
