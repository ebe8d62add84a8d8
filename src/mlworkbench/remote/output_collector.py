"""The manifest of ``outputs/``: path, size and sha256 of every file. Nothing is opened through a link.

There may be a million of them, and terabytes: entries are made and written one by one, so that memory stays small.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from contextlib import nullcontext

from .journal import REFUSED, spare_room
from .linked_outputs import LinkedOutputs
from .pending_ending import probe, until_written
from .shared import machine
from .shared.failpoint import failpoint
from .shared.files import put_in_place
from .shared.layout import RunFolder
from .shared.left_out import LeftOut
from .shared.output_kinds import (
    DEVICE,
    FIFO,
    LEFT_OUT,
    LINK,
    NOT_HASHED,
    SOCKET,
    TOO_LONG,
    UNCOLLECTED,
    UNREADABLE,
    VANISHED,
)
from .shared.tree import Folders, join

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple

CHUNK = 4 * 1024 * 1024
_PAGE = 1 << 18
_LOOK = 16  # small files between two looks whether to hurry
_ZEROS = bytes(1 << 20)
SPECIAL = "special"  # not a kind: which one it is, is looked up
MOST_HOLES = 4 * 1024 * 1024 * 1024  # bytes in holes of sparse files that are hashed, of all outputs together
_KINDS = ((stat.S_ISLNK, LINK), (stat.S_ISFIFO, FIFO), (stat.S_ISSOCK, SOCKET))
_LONGEST_PATH = 4096  # bytes
# O_NONBLOCK: should the file have been swapped for a FIFO since it was seen, opening it must not block.
_OPEN = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _OPEN |= getattr(os, _flag, 0)


def record_patiently(run: RunFolder, cancelled: Callable[[], bool], waiting: Callable[[], None]) -> Dict[str, Any]:
    """``record_outputs`` as soon as the disk takes the list; what an ending says of it. A cancel ends the wait.

    ``waiting`` is called before each pause.
    """
    found: Dict[str, Any] = {"outputs": None, "output_bytes": None}

    def record() -> None:
        spare_room(run, lambda: probe(run))  # hashing terabytes for a list that cannot be written helps nobody
        left = LeftOut()
        count, size, uncollected = record_outputs(run, cancelled, left)
        found.update(outputs=count, output_bytes=size, uncollected=uncollected, left_out=left.lines())

    until_written(run, record, "the list of outputs", waiting, lambda error: error.errno not in REFUSED or cancelled())
    return found


def record_outputs(run: RunFolder, hurry: Callable[[], bool], left: Optional[LeftOut] = None) -> Tuple[int, int, int]:
    """Write ``outputs.json``, whole or not at all. Returns the number of outputs, their bytes, and the other entries.

    Links to files of the working copy become files. ``left`` gets what could not be read, hashed or collected.
    """
    part = "%s.%s.part" % (run.manifest, os.urandom(8).hex())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            written = _write_entries(run, descriptor, hurry, left or LeftOut())
            spare_room(run, lambda: os.fsync(descriptor))
        finally:
            os.close(descriptor)
        put_in_place(part, run.manifest)
    except BaseException:
        os.unlink(part)
        raise
    machine.sync_folder(run.path)
    return written


def _write_entries(run: RunFolder, descriptor: int, hurry: Callable[[], bool], left: LeftOut) -> Tuple[int, int, int]:
    count = size = uncollected = at = 0
    text = '{"outputs": ['
    with _links_of(run) as links:
        for one in each_output(run.outputs, hurry, links):
            text += (", " if count else "") + json.dumps(one)
            count += 1
            size += one["size"]
            uncollected += one["kind"] in UNCOLLECTED
            if one["kind"] in LEFT_OUT:
                left.add(_shown(one), one["kind"])
            if len(text) >= _PAGE:
                at = _write_at(run, descriptor, text, at)
                text = ""
    _write_at(run, descriptor, text + "]}", at)
    return count - uncollected, size, uncollected


def _links_of(run: RunFolder) -> ContextManager[Optional[LinkedOutputs]]:
    try:
        return LinkedOutputs(run)
    except OSError:  # the script has removed its working copy, or put something else in its place
        return nullcontext()


def _shown(one: Dict[str, Any]) -> str:
    path = join("outputs", one["path"]) if one["path"] else "outputs"
    return "%s -> %s" % (path, one["to"]) if "to" in one else path


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


def each_output(
    folder: str, hurry: Callable[[], bool], links: Optional[LinkedOutputs] = None
) -> Iterator[Dict[str, Any]]:
    """One entry per file below ``folder``, in the order of their paths, which use '/' and surrogates for odd bytes.

    Hashing terabytes takes hours: when ``hurry`` says so, the rest is listed without digests. A folder that cannot be
    listed is one entry, so that what is in it is not missing without a word. ``links``: collects what they lead to.
    """
    entry: Dict[str, Any] = {"path": "", "size": 0, "sha256": None}
    try:
        folders = Folders(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if not os.path.islink(folder):
            yield dict(entry, kind=_why(error))
        elif links is None:
            yield dict(entry, kind=LINK, to=os.readlink(folder))
        else:
            yield dict(entry, **links.collect("", None))
        return
    hashing = _Hashing(hurry)
    with folders:
        for number, (path, special) in enumerate(_walk(folders, len(os.fsencode(folder)) + 1)):
            if number % _LOOK == 0:
                hashing.look()
            found = _describe(folders, path, special, links, hashing.hurried) if special else None
            yield dict(entry, path=path, **found) if found else hashing.digest(folders, path)


def _walk(folders: Folders, base: int) -> Iterator[Tuple[str, str]]:
    """(path, what it is if not a file). Holds the names on the way down only. ``base``: bytes before each path."""
    try:
        pending = [("", *_names(folders.open("")))]
    except OSError as error:
        yield "", _why(error)
        return
    while pending:
        prefix, names, special = pending[-1]
        if not names:
            pending.pop()
            continue
        name = names.pop()
        path = prefix + name.rstrip("/")
        if base + len(os.fsencode(path)) >= _LONGEST_PATH:
            yield path, TOO_LONG
        elif not name.endswith("/"):
            yield path, special.get(name, "")
        else:
            try:
                pending.append((prefix + name, *_names(folders.open(path))))
            except OSError as error:
                yield path, _why(error)


def _names(folder: int) -> Tuple[List[str], Dict[str, str]]:
    """What is in a folder, the last first, folders with a '/' at the end; and what those are that are not files.

    The '/' counts in the order, so that the walk comes by paths as if all of them had been sorted.
    """
    names: List[str] = []
    special: Dict[str, str] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name + "/")
                continue
            names.append(entry.name)
            if not entry.is_file(follow_symlinks=False):
                special[entry.name] = SPECIAL
    names.sort(reverse=True)
    return names, special


def _why(error: OSError) -> str:
    """The kind of an entry that could not be read."""
    return VANISHED if error.errno == errno.ENOENT else UNREADABLE


def _describe(
    folders: Folders, path: str, special: str, links: Optional[LinkedOutputs], hurried: bool
) -> Dict[str, str]:
    """What stands there and is no file; {} if a link was replaced by a file."""
    if special != SPECIAL:
        return {"kind": special}
    folder, _, name = path.rpartition("/")
    try:
        parent = folders.open(folder)
        facts = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kind = next((word for test, word in _KINDS if test(facts.st_mode)), DEVICE)
        if kind != LINK:
            return {"kind": kind}
        if links is None:
            return {"kind": LINK, "to": os.readlink(name, dir_fd=parent)}
        return links.leave(path, parent) if hurried else links.collect(path, parent)
    except OSError as error:
        return {"kind": _why(error)}


class _Hashing:
    """Digests of files, one after the other, until a cancel asks to stop."""

    def __init__(self, hurry: Callable[[], bool]) -> None:
        self._hurry = hurry
        self.hurried = False
        self._holes = MOST_HOLES

    def look(self) -> bool:
        """Whether the rest is listed without digests."""
        self.hurried = self.hurried or self._hurry()
        return self.hurried

    def digest(self, folders: Folders, path: str) -> Dict[str, Any]:
        """Hash what is opened, and say so if it changed meanwhile (something of the run may still write)."""
        entry: Dict[str, Any] = {"path": path, "size": 0, "sha256": None}
        folder, _, name = path.rpartition("/")
        try:
            descriptor = os.open(name, _OPEN, dir_fd=folders.open(folder))
        except OSError as error:
            return dict(entry, kind=_why(error))
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return dict(entry, kind=DEVICE)
            found = None if self.hurried and before.st_size else self._hash(descriptor, before)
            if found is None:
                return dict(entry, size=before.st_size, kind=NOT_HASHED)
            after = os.fstat(descriptor)
        except OSError:
            return dict(entry, kind=UNREADABLE)
        finally:
            os.close(descriptor)
        sha256, size = found
        changed = (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size
        return dict(entry, size=size, sha256=sha256, kind="changed while read" if changed else "file")

    def _hash(self, descriptor: int, facts: os.stat_result) -> Optional[Tuple[str, int]]:
        """Digest and size; None if that would take too long."""
        digest, size = hashlib.sha256(), 0
        for piece in self._pieces(descriptor, facts):
            if piece is None:
                return None
            digest.update(piece)
            size += len(piece)
            failpoint("hashing")
            if size >= CHUNK and self.look():
                return None
        return digest.hexdigest(), size

    def _pieces(self, descriptor: int, facts: os.stat_result) -> Iterator[Optional[bytes]]:
        """The content to its end. Holes are not read, which would fill the memory of the machine with zeros.

        None: there are more holes than are worth hashing; a script makes terabytes of them in no time.
        """
        sparse = getattr(facts, "st_blocks", facts.st_size) * 512 < facts.st_size
        at = 0
        while True:
            end = hole_end(descriptor, at, facts.st_size) if sparse else at
            self._holes -= end - at
            if self._holes < 0:
                self._holes += end - at
                yield None
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
