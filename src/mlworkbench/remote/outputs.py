"""The manifest of ``outputs/``: path, size and sha256 of every file. Links and special files are never followed.

There may be a million of them, and terabytes: entries are made and written one by one, so that memory stays small.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat

from . import machine
from .folder import RunFolder
from .journal import spare_room

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

CHUNK = 4 * 1024 * 1024
_PAGE = 1 << 18
_LOOK = 16  # small files between two looks whether to hurry
_ZEROS = bytes(1 << 20)
_KINDS = ((stat.S_ISLNK, "link"), (stat.S_ISFIFO, "fifo"), (stat.S_ISSOCK, "socket"))
# O_NONBLOCK: should the file have been swapped for a FIFO since it was seen, opening it must not block.
_OPEN = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _OPEN |= getattr(os, _flag, 0)


def record_outputs(run: RunFolder, hurry: Callable[[], bool]) -> Tuple[int, int]:
    """Write ``outputs.json``, whole or not at all; tells how many outputs there are, and their bytes."""
    part = "%s.%s.part" % (run.manifest, os.urandom(8).hex())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            written = _write_entries(run, descriptor, hurry)
            spare_room(run, lambda: os.fsync(descriptor))
        finally:
            os.close(descriptor)
        os.replace(part, run.manifest)
    except BaseException:
        os.unlink(part)
        raise
    machine.sync_folder(run.path)
    return written


def _write_entries(run: RunFolder, descriptor: int, hurry: Callable[[], bool]) -> Tuple[int, int]:
    count = size = at = 0
    text = '{"outputs": ['
    for one in each_output(run.outputs, hurry):
        text += (", " if count else "") + json.dumps(one)
        count += 1
        size += one["size"]
        if len(text) >= _PAGE:
            at = _write_at(run, descriptor, text, at)
            text = ""
    _write_at(run, descriptor, text + "]}", at)
    return count, size


def _write_at(run: RunFolder, descriptor: int, text: str, at: int) -> int:
    """Write at a place and tell where the next goes: an attempt that filled the disk is repeated there."""
    data = text.encode("ascii")

    def write() -> None:
        os.lseek(descriptor, at, os.SEEK_SET)
        rest = data
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    spare_room(run, write)
    return at + len(data)


def list_outputs(folder: str, hurry: Callable[[], bool]) -> List[Dict[str, Any]]:
    """All entries at once."""
    return list(each_output(folder, hurry))


def each_output(folder: str, hurry: Callable[[], bool]) -> Iterator[Dict[str, Any]]:
    """One entry per file below ``folder``, in the order of their paths, which use '/' and surrogates for odd bytes.

    Hashing terabytes takes hours: when ``hurry`` says so, the rest is listed without digests.
    """
    if os.path.islink(folder):
        yield {"path": "", "size": 0, "sha256": None, "kind": "link", "to": os.readlink(folder)}
        return
    hurried = False
    for number, (name, special) in enumerate(_walk(folder)):
        hurried = hurried or (number % _LOOK == 0 and hurry())
        path = os.path.join(folder, name)
        yield _describe(path, name) if special else _digest(path, name, hurried, hurry)


def _walk(folder: str) -> Iterator[Tuple[str, bool]]:
    """(path below ``folder``, whether it is something else than a file). Holds the names on the way down only."""
    pending = [("", *_names(folder))]
    while pending:
        prefix, names, special = pending[-1]
        if not names:
            pending.pop()
            continue
        name = names.pop()
        if name.endswith("/"):
            pending.append((prefix + name, *_names(os.path.join(folder, prefix + name))))
        else:
            yield prefix + name, name in special


def _names(folder: str) -> Tuple[List[str], Set[str]]:
    """What is in a folder, the last first, folders with a '/' at the end; and which of them are not files.

    The '/' counts in the order, so that the walk comes by paths as if all of them had been sorted.
    """
    names: List[str] = []
    special: Set[str] = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name + "/")
                    continue
                names.append(entry.name)
                if not entry.is_file(follow_symlinks=False):
                    special.add(entry.name)
    except OSError:
        pass  # the script closed it to us
    names.sort(reverse=True)
    return names, special


def _describe(path: str, name: str) -> Dict[str, Any]:
    try:
        facts = os.lstat(path)
        kind = next((word for test, word in _KINDS if test(facts.st_mode)), "device")
        entry: Dict[str, Any] = {"path": name, "size": 0, "sha256": None, "kind": kind}
        if kind == "link":
            entry["to"] = os.readlink(path)
        return entry
    except OSError:
        return {"path": name, "size": 0, "sha256": None, "kind": "vanished"}


def _digest(path: str, name: str, hurried: bool, hurry: Callable[[], bool]) -> Dict[str, Any]:
    """Hash what is opened, and say so if it changed meanwhile (something of the run may still write)."""
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return {"path": name, "size": 0, "sha256": None, "kind": "vanished"}
    except OSError:
        return {"path": name, "size": 0, "sha256": None, "kind": "unreadable"}
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return {"path": name, "size": 0, "sha256": None, "kind": "device"}
        digest, size = hashlib.sha256(), 0
        for piece in () if hurried and before.st_size else _pieces(descriptor, before):
            digest.update(piece)
            size += len(piece)
            if size >= CHUNK and hurry():
                hurried = True
                break
        if hurried and before.st_size:
            return {"path": name, "size": before.st_size, "sha256": None, "kind": "not hashed"}
        after = os.fstat(descriptor)
    except OSError:
        return {"path": name, "size": 0, "sha256": None, "kind": "unreadable"}
    finally:
        os.close(descriptor)
    changed = (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size
    kind = "changed while read" if changed else "file"
    return {"path": name, "size": size, "sha256": digest.hexdigest(), "kind": kind}


def _pieces(descriptor: int, facts: os.stat_result) -> Iterator[bytes]:
    """The content to its end. Holes are not read, which would fill the memory of the machine with zeros."""
    sparse = getattr(facts, "st_blocks", facts.st_size) * 512 < facts.st_size
    at = 0
    while True:
        end = hole_end(descriptor, at, facts.st_size) if sparse else at
        while at < end:
            piece = _ZEROS[: end - at]
            at += len(piece)
            yield piece
        # A buffer of 4 MB for each of 100,000 small files would take longer than reading them.
        piece = os.read(descriptor, min(CHUNK, max(facts.st_size - at, 4096) + 1))
        if not piece:
            return
        at += len(piece)
        yield piece
        if at == facts.st_size and not sparse:
            return


def hole_end(descriptor: int, at: int, size: int) -> int:
    """Where the hole at ``at`` ends, ``at`` if there is none. The descriptor stands there afterwards."""
    if at >= size or not hasattr(os, "SEEK_DATA"):
        return os.lseek(descriptor, at, os.SEEK_SET)
    try:
        return min(os.lseek(descriptor, at, os.SEEK_DATA), size)
    except OSError as error:
        # ENXIO: no data is left. Any other: a disk that cannot tell holes.
        return os.lseek(descriptor, size if error.errno == errno.ENXIO else at, os.SEEK_SET)
