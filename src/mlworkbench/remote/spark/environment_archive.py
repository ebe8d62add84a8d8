"""An environment in one file, for the executors of a cluster: they unpack it, and have nothing else of ours.

One at a time makes it, under the lock of who builds the environment. It counts from the moment that the environment's
note knows it, and goes when the environment goes.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import tarfile
import time

from ..environments.build import SILENCE, Cancelled, take_lock
from ..environments.packed import is_packed, note_pack
from ..environments.program_errors import full
from ..shared.environment_layout import pack_of, prefix_of
from ..shared.failpoint import failpoint
from ..shared.layout import Root
from ..shared.tree import remove
from .movable import items_of

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    from .movable import Item

    Lock = Dict[str, Any]
    Say = Callable[[str], None]

_LEVEL = 1  # of compression: more takes far longer than the network does
_BLOCK = 1 << 20
_FORMAT = tarfile.GNU_FORMAT  # every tar reads it
_WAIT = "another run is packing the same environment; waiting for it"


def pack(root: Root, lock: Lock, say: Say, cancelled: Callable[[], bool] = lambda: False) -> str:
    """The file, made if it is not there. The environment has to be. Raises NoEnvironment, Cancelled or OSError."""
    path = pack_of(root, lock)
    if is_packed(root, lock):
        return path
    holder = take_lock(prefix_of(root, lock) + ".lock", say, cancelled, _WAIT)
    try:
        if not is_packed(root, lock):  # somebody else may have made it meanwhile
            _make(root, lock, say, cancelled)
    finally:
        os.close(holder)
    return path


def _make(root: Root, lock: Lock, say: Say, cancelled: Callable[[], bool]) -> None:
    begun = time.monotonic()
    path, scratch = pack_of(root, lock), prefix_of(root, lock) + ".tmp"
    part = path + ".part"
    remove(scratch)
    try:
        os.mkdir(scratch, 0o700)
        items = items_of(root, lock, scratch, say)
        total = sum(one.size for one in items)
        say("packing the environment for the executors: %d files, %.0f MB" % (len(items), total / 1e6))
        with open(part, "wb") as file:
            _write(file, items, _Progress(total, say, cancelled))
            file.flush()
            os.fchmod(file.fileno(), 0o400)
            os.fsync(file.fileno())
        failpoint("pack-written")
        os.replace(part, path)
        note_pack(root, lock)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise full(root.path) from None
        raise
    finally:
        remove(scratch)
        remove(part)
    say("packed: %.1f MB after %.1f s" % (os.path.getsize(path) / 1e6, time.monotonic() - begun))


class _Progress:
    """Told of every block: it ends the work if somebody wants that, and says now and then how far it is."""

    def __init__(self, total: int, say: Say, cancelled: Callable[[], bool]) -> None:
        self._total = total
        self._done = 0
        self._say = say
        self._cancelled = cancelled
        self._told = self._looked = time.monotonic()

    def add(self, size: int) -> None:
        self._done += size
        now = time.monotonic()
        if now > self._looked + 0.1:
            self._looked = now
            if self._cancelled():
                raise Cancelled
        if now > self._told + SILENCE:
            self._told = now
            self._say("… %.0f of %.0f MB packed" % (self._done / 1e6, self._total / 1e6))


class _Reader(io.RawIOBase):
    """A file whose every block is counted."""

    def __init__(self, file: Any, progress: _Progress) -> None:
        super().__init__()
        self._file = file
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._progress.add(len(data))
        return data


def _write(file: Any, items: List[Item], progress: _Progress) -> None:
    """The same items make the same bytes: no names of owners, no time of the packing."""
    with gzip.GzipFile("", "wb", _LEVEL, file, 0) as squeezed, tarfile.TarFile("", "w", squeezed, _FORMAT) as tar:
        tar.copybufsize = _BLOCK  # type: ignore[attr-defined]
        for one in items:
            entry = tarfile.TarInfo(one.name)
            if one.link:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, one.link, 0o777
                tar.addfile(entry)
            elif one.text:
                entry.size, entry.mode = one.size, 0o755
                tar.addfile(entry, io.BytesIO(one.text.encode("ascii")))
            else:
                _add(tar, entry, one.path, progress)


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: str, progress: _Progress) -> None:
    """With its time, by which bytecode knows its source; and writable, so that Spark can remove it when it is done."""
    with open(path, "rb", _BLOCK) as file:
        facts = os.fstat(file.fileno())
        entry.size, entry.mtime = facts.st_size, int(facts.st_mtime)
        entry.mode = 0o755 if facts.st_mode & stat.S_IXUSR else 0o644
        tar.addfile(entry, _Reader(file, progress))
