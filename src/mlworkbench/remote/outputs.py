"""The manifest of ``outputs/``: path, size and sha256 of every file. Links and special files are never followed."""

from __future__ import annotations

import hashlib
import os
import stat

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Tuple

CHUNK = 4 * 1024 * 1024
_KINDS = ((stat.S_ISLNK, "link"), (stat.S_ISFIFO, "fifo"), (stat.S_ISSOCK, "socket"))


def list_outputs(folder: str, hurry: Callable[[], bool]) -> List[Dict[str, Any]]:
    """One entry per file below ``folder``, sorted by path; paths use '/' and surrogates for odd bytes.

    Hashing terabytes takes hours: when ``hurry`` says so, the rest is listed without digests.
    """
    if os.path.islink(folder):
        return [{"path": "", "size": 0, "sha256": None, "kind": "link", "to": os.readlink(folder)}]
    return sorted((_describe(path, name, hurry) for path, name in _walk(folder)), key=lambda one: str(one["path"]))


def _walk(folder: str) -> Iterator[Tuple[str, str]]:
    pending = [(folder, "")]
    while pending:
        place, prefix = pending.pop()
        try:
            with os.scandir(place) as entries:
                found = list(entries)
        except OSError:
            continue  # the script closed it to us
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, prefix + entry.name + "/"))
            else:
                yield entry.path, prefix + entry.name


def _describe(path: str, name: str, hurry: Callable[[], bool]) -> Dict[str, Any]:
    try:
        facts = os.lstat(path)
    except OSError:
        return {"path": name, "size": 0, "sha256": None, "kind": "vanished"}
    if not stat.S_ISREG(facts.st_mode):
        kind = next((word for test, word in _KINDS if test(facts.st_mode)), "device")
        entry: Dict[str, Any] = {"path": name, "size": 0, "sha256": None, "kind": kind}
        if kind == "link":
            entry["to"] = os.readlink(path)
        return entry
    return _digest(path, name, hurry)


def _digest(path: str, name: str, hurry: Callable[[], bool]) -> Dict[str, Any]:
    """Hash what is opened, and say so if it changed meanwhile (something of the run may still write)."""
    try:
        # O_NONBLOCK: should the file have been swapped for a FIFO since lstat, opening it must not block.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError:
        return {"path": name, "size": 0, "sha256": None, "kind": "unreadable"}
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return {"path": name, "size": 0, "sha256": None, "kind": "device"}
        digest, size = hashlib.sha256(), 0
        while True:
            part = os.read(descriptor, CHUNK)
            if not part:
                break
            if hurry():
                return {"path": name, "size": before.st_size, "sha256": None, "kind": "not hashed"}
            digest.update(part)
            size += len(part)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    changed = (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size
    kind = "changed while read" if changed else "file"
    return {"path": name, "size": size, "sha256": digest.hexdigest(), "kind": kind}
