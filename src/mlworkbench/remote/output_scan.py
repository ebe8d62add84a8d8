"""The manifest of ``outputs/``: path, size, and SHA-256 of every file. Links are not followed.

There may be a million files or terabytes of data, so entries are created and written one by one to
limit memory use.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from contextlib import nullcontext

from .journal import WRITE_REFUSED, write_with_reserve
from .linked_outputs import LinkedOutputs
from .pending_ending import probe_write, retry_until_written
from .shared import machine
from .shared.atomic_files import move_into_place
from .shared.failpoint import failpoint
from .shared.folder_tree import FolderHandles, join
from .shared.layout import RunFolder
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
from .shared.unread_files import UnreadFiles

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple

CHUNK = 4 * 1024 * 1024
_WRITE_SIZE = 1 << 18
_CHECK_INTERVAL = 16  # number of entries between two checks of ``hurry``
_ZEROS = bytes(1 << 20)
SPECIAL = "special"  # placeholder: the actual kind is determined later
MAX_HOLE_BYTES = 4 * 1024 * 1024 * 1024  # maximum bytes hashed in the holes of sparse files, over all outputs
_KINDS = ((stat.S_ISLNK, LINK), (stat.S_ISFIFO, FIFO), (stat.S_ISSOCK, SOCKET))
_MAX_PATH_LENGTH = 4096  # bytes
# O_NONBLOCK: opening must not block if the file has been replaced by a FIFO.
_OPEN_FLAGS = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _OPEN_FLAGS |= getattr(os, _flag, 0)


def record_outputs_with_retries(
    run: RunFolder, is_canceled: Callable[[], bool], waiting: Callable[[], None]
) -> Dict[str, Any]:
    """Call ``record_outputs``, retry while the list cannot be written, and return data for the ending.

    A cancel ends the retries. ``waiting`` is called before each pause.
    """
    result: Dict[str, Any] = {"outputs": None, "output_bytes": None}

    def record() -> None:
        # Do not hash terabytes if the list cannot be written anyway.
        write_with_reserve(run, lambda: probe_write(run))
        omitted = UnreadFiles()
        count, size, uncollected = record_outputs(run, is_canceled, omitted)
        result.update(outputs=count, output_bytes=size, uncollected=uncollected, left_out=omitted.lines())

    retry_until_written(
        run, record, "the list of outputs", waiting, lambda error: error.errno not in WRITE_REFUSED or is_canceled()
    )
    return result


def record_outputs(
    run: RunFolder, hurry: Callable[[], bool], omitted: Optional[UnreadFiles] = None
) -> Tuple[int, int, int]:
    """Write ``outputs.json`` atomically. Return the counts of outputs, bytes, and other entries.

    Links to files in the working copy are replaced by the files. ``omitted`` collects entries that
    could not be read, hashed, or collected.
    """
    temporary = "%s.%s.part" % (run.manifest, os.urandom(8).hex())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            written = _write_entries(run, descriptor, hurry, omitted or UnreadFiles())
            write_with_reserve(run, lambda: os.fsync(descriptor))
        finally:
            os.close(descriptor)
        move_into_place(temporary, run.manifest)
    except BaseException:
        os.unlink(temporary)
        raise
    machine.sync_folder(run.path)
    return written


def _write_entries(
    run: RunFolder, descriptor: int, hurry: Callable[[], bool], omitted: UnreadFiles
) -> Tuple[int, int, int]:
    count = size = uncollected = offset = 0
    text = '{"outputs": ['
    with _open_links(run) as links:
        for entry in iterate_outputs(run.outputs, hurry, links):
            text += (", " if count else "") + json.dumps(entry)
            count += 1
            size += entry["size"]
            uncollected += entry["kind"] in UNCOLLECTED
            if entry["kind"] in LEFT_OUT:
                omitted.add(_display_path(entry), entry["kind"])
            if len(text) >= _WRITE_SIZE:
                offset = _write_at(run, descriptor, text, offset)
                text = ""
    _write_at(run, descriptor, text + "]}", offset)
    return count - uncollected, size, uncollected


def _open_links(run: RunFolder) -> ContextManager[Optional[LinkedOutputs]]:
    try:
        return LinkedOutputs(run)
    except OSError:  # the script has removed or replaced its working copy
        return nullcontext()


def _display_path(entry: Dict[str, Any]) -> str:
    path = join("outputs", entry["path"]) if entry["path"] else "outputs"
    return "%s -> %s" % (path, entry["to"]) if "to" in entry else path


def _write_at(run: RunFolder, descriptor: int, text: str, offset: int) -> int:
    """Write ``text`` at ``offset`` and return the offset after it.

    If the disk is full, the write is repeated at the same offset.
    """
    data = text.encode("ascii")

    def write() -> None:
        os.lseek(descriptor, offset, os.SEEK_SET)
        rest = data
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    write_with_reserve(run, write)
    return offset + len(data)


def iterate_outputs(
    folder: str, hurry: Callable[[], bool], links: Optional[LinkedOutputs] = None
) -> Iterator[Dict[str, Any]]:
    """Yield one entry per file below ``folder``, sorted by path.

    Paths use '/' as the separator and surrogates for undecodable bytes. Hashing terabytes takes hours,
    so once ``hurry`` returns true, the remaining files are listed without digests. A folder that cannot
    be listed becomes an entry itself. ``links`` collects the targets of links.
    """
    entry: Dict[str, Any] = {"path": "", "size": 0, "sha256": None}
    try:
        folders = FolderHandles(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if not os.path.islink(folder):
            yield dict(entry, kind=_error_kind(error))
        elif links is None:
            yield dict(entry, kind=LINK, to=os.readlink(folder))
        else:
            yield dict(entry, **links.collect("", None))
        return
    hashing = _Hasher(hurry)
    with folders:
        for number, (path, special) in enumerate(_walk(folders, len(os.fsencode(folder)) + 1)):
            if number % _CHECK_INTERVAL == 0:
                hashing.check_hurry()
            details = _describe(folders, path, special, links, hashing.hurried) if special else None
            yield dict(entry, path=path, **details) if details else hashing.digest(folders, path)


def _walk(folders: FolderHandles, base: int) -> Iterator[Tuple[str, str]]:
    """Yield the path of each entry, and its kind unless it is a regular file.

    Only the names in the folders on the current path are kept in memory. ``base`` is the number of
    bytes that precede each path.
    """
    try:
        pending = [("", *_list_folder(folders.open("")))]
    except OSError as error:
        yield "", _error_kind(error)
        return
    while pending:
        prefix, names, special = pending[-1]
        if not names:
            pending.pop()
            continue
        name = names.pop()
        path = prefix + name.rstrip("/")
        if base + len(os.fsencode(path)) >= _MAX_PATH_LENGTH:
            yield path, TOO_LONG
        elif not name.endswith("/"):
            yield path, special.get(name, "")
        else:
            try:
                pending.append((prefix + name, *_list_folder(folders.open(path))))
            except OSError as error:
                yield path, _error_kind(error)


def _list_folder(folder: int) -> Tuple[List[str], Dict[str, str]]:
    """Return the names in a folder in reverse order, and the kinds of special files.

    Folder names end with '/', which is part of the sort key, so that the walk yields all paths in
    sorted order.
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


def _error_kind(error: OSError) -> str:
    """Return the kind of an entry that could not be read."""
    return VANISHED if error.errno == errno.ENOENT else UNREADABLE


def _describe(
    folders: FolderHandles, path: str, special: str, links: Optional[LinkedOutputs], hurried: bool
) -> Dict[str, str]:
    """Describe an entry that is not a regular file. Return {} if a file has replaced the link."""
    if special != SPECIAL:
        return {"kind": special}
    folder, _, name = path.rpartition("/")
    try:
        parent = folders.open(folder)
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kind = next((name_of_kind for test, name_of_kind in _KINDS if test(status.st_mode)), DEVICE)
        if kind != LINK:
            return {"kind": kind}
        if links is None:
            return {"kind": LINK, "to": os.readlink(name, dir_fd=parent)}
        return links.skip(path, parent) if hurried else links.collect(path, parent)
    except OSError as error:
        return {"kind": _error_kind(error)}


class _Hasher:
    """File hasher that stops computing digests once ``hurry`` returns true."""

    def __init__(self, hurry: Callable[[], bool]) -> None:
        self._hurry = hurry
        self.hurried = False
        self._holes = MAX_HOLE_BYTES

    def check_hurry(self) -> bool:
        """Return whether the remaining files are to be listed without digests."""
        self.hurried = self.hurried or self._hurry()
        return self.hurried

    def digest(self, folders: FolderHandles, path: str) -> Dict[str, Any]:
        """Hash a file, and report if it changed meanwhile.

        A process of the run may still be writing to it.
        """
        entry: Dict[str, Any] = {"path": path, "size": 0, "sha256": None}
        folder, _, name = path.rpartition("/")
        try:
            descriptor = os.open(name, _OPEN_FLAGS, dir_fd=folders.open(folder))
        except OSError as error:
            return dict(entry, kind=_error_kind(error))
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return dict(entry, kind=DEVICE)
            result = None if self.hurried and before.st_size else self._hash(descriptor, before)
            if result is None:
                return dict(entry, size=before.st_size, kind=NOT_HASHED)
            after = os.fstat(descriptor)
        except OSError:
            return dict(entry, kind=UNREADABLE)
        finally:
            os.close(descriptor)
        sha256, size = result
        changed = (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size
        return dict(entry, size=size, sha256=sha256, kind="changed while read" if changed else "file")

    def _hash(self, descriptor: int, status: os.stat_result) -> Optional[Tuple[str, int]]:
        """Return the digest and the size, or None if hashing would take too long."""
        digest, size = hashlib.sha256(), 0
        for piece in self._pieces(descriptor, status):
            if piece is None:
                return None
            digest.update(piece)
            size += len(piece)
            failpoint("hashing")
            if size >= CHUNK and self.check_hurry():
                return None
        return digest.hexdigest(), size

    def _pieces(self, descriptor: int, status: os.stat_result) -> Iterator[Optional[bytes]]:
        """Yield the content in pieces.

        Holes are not read, because that would fill the page cache with zeros. Yield None if there are too
        many holes to hash: a script can create terabytes of them instantly.
        """
        sparse = getattr(status, "st_blocks", status.st_size) * 512 < status.st_size
        offset = 0
        while True:
            end = hole_end(descriptor, offset, status.st_size) if sparse else offset
            self._holes -= end - offset
            if self._holes < 0:
                self._holes += end - offset
                yield None
            while offset < end:
                piece = _ZEROS[: end - offset]
                offset += len(piece)
                yield piece
            # A buffer of 4 MB for each of 100,000 small files would take longer than reading them.
            piece = os.read(descriptor, min(CHUNK, max(status.st_size - offset, 4096) + 1))
            if not piece:
                return
            offset += len(piece)
            yield piece
            if offset == status.st_size and not sparse:
                return


def hole_end(descriptor: int, offset: int, size: int) -> int:
    """Return where the hole at ``offset`` ends, or ``offset`` if there is none.

    The file position is set to the returned offset.
    """
    if offset >= size or not hasattr(os, "SEEK_DATA"):
        return os.lseek(descriptor, offset, os.SEEK_SET)
    try:
        return min(os.lseek(descriptor, offset, os.SEEK_DATA), size)
    except OSError as error:
        # ENXIO: no data is left. Other errors: the file system does not report holes.
        return os.lseek(descriptor, size if error.errno == errno.ENXIO else offset, os.SEEK_SET)
