"""Pack an environment into one self-contained archive, which cluster executors unpack.

The environment builder's lock ensures that only one process packs. An archive is valid once the
environment's marker mentions it, and is deleted together with the environment.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import tarfile
import time

from ..environments.archive_record import is_packed, record_pack
from ..environments.build import REPORT_INTERVAL, Cancelled, take_lock
from ..environments.build_errors import disk_full_error
from ..shared.environment_layout import pack_of, prefix_of
from ..shared.failpoint import failpoint
from ..shared.folder_tree import remove
from ..shared.layout import Root
from .relocatable import collect_items

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    from .relocatable import ArchiveItem

    Lock = Dict[str, Any]
    Report = Callable[[str], None]

_COMPRESSION = 1  # gzip level: higher levels take far longer than the time they save in network transfer
_BLOCK_SIZE = 1 << 20
_FORMAT = tarfile.GNU_FORMAT  # supported by every tar
_WAIT_MESSAGE = "another run is packing the same environment; waiting for it"


def pack_environment(root: Root, lock: Lock, report: Report, cancelled: Callable[[], bool] = lambda: False) -> str:
    """Return the path of the archive, and create it if it is missing. The environment must exist.

    Raise NoEnvironment, Cancelled, or OSError on failure.
    """
    path = pack_of(root, lock)
    if is_packed(root, lock):
        return path
    descriptor = take_lock(prefix_of(root, lock) + ".lock", report, cancelled, _WAIT_MESSAGE)
    try:
        if not is_packed(root, lock):  # another process may have just created it
            _create_archive(root, lock, report, cancelled)
    finally:
        os.close(descriptor)
    return path


def _create_archive(root: Root, lock: Lock, report: Report, cancelled: Callable[[], bool]) -> None:
    started = time.monotonic()
    path, scratch = pack_of(root, lock), prefix_of(root, lock) + ".tmp"
    part = path + ".part"
    remove(scratch)
    try:
        os.mkdir(scratch, 0o700)
        items = collect_items(root, lock, scratch, report)
        total = sum(item.size for item in items)
        report("packing the environment for the executors: %d files, %.0f MB" % (len(items), total / 1e6))
        with open(part, "wb") as file:
            _write_archive(file, items, _Progress(total, report, cancelled))
            file.flush()
            os.fchmod(file.fileno(), 0o400)
            os.fsync(file.fileno())
        failpoint("pack-written")
        os.replace(part, path)
        record_pack(root, lock)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full_error(root.path) from None
        raise
    finally:
        remove(scratch)
        remove(part)
    report("packed: %.1f MB after %.1f s" % (os.path.getsize(path) / 1e6, time.monotonic() - started))


class _Progress:
    """Progress reports at intervals; ``add`` raises Cancelled if the run is canceled."""

    def __init__(self, total: int, report: Report, cancelled: Callable[[], bool]) -> None:
        self._total = total
        self._done = 0
        self._report = report
        self._cancelled = cancelled
        self._last_report = self._last_check = time.monotonic()

    def add(self, size: int) -> None:
        self._done += size
        now = time.monotonic()
        if now > self._last_check + 0.1:
            self._last_check = now
            if self._cancelled():
                raise Cancelled
        if now > self._last_report + REPORT_INTERVAL:
            self._last_report = now
            self._report("… %.0f of %.0f MB packed" % (self._done / 1e6, self._total / 1e6))


class _CountingReader(io.RawIOBase):
    """A file reader that counts bytes for progress reports."""

    def __init__(self, file: Any, progress: _Progress) -> None:
        super().__init__()
        self._file = file
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._progress.add(len(data))
        return data


def _write_archive(file: Any, items: List[ArchiveItem], progress: _Progress) -> None:
    """Write the archive.

    The same items produce the same bytes: neither owners nor the packing time are stored.
    """
    with gzip.GzipFile("", "wb", _COMPRESSION, file, 0) as packed, tarfile.TarFile("", "w", packed, _FORMAT) as tar:
        tar.copybufsize = _BLOCK_SIZE  # type: ignore[attr-defined]
        for item in items:
            entry = tarfile.TarInfo(item.name)
            if item.link:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, item.link, 0o777
                tar.addfile(entry)
            elif item.text:
                entry.size, entry.mode = item.size, 0o755
                tar.addfile(entry, io.BytesIO(item.text.encode("ascii")))
            else:
                _add_file(tar, entry, item.path, progress)


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: str, progress: _Progress) -> None:
    """Add a file with its modification time, which Python uses to validate bytecode.

    The file is writable, so that Spark can delete it.
    """
    with open(path, "rb", _BLOCK_SIZE) as file:
        status = os.fstat(file.fileno())
        entry.size, entry.mtime = status.st_size, int(status.st_mtime)
        entry.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        tar.addfile(entry, _CountingReader(file, progress))
