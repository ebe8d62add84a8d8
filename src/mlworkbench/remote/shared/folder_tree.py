"""Folder trees without following links: folder handles, file copies, and removal."""

from __future__ import annotations

import errno
import os
import stat
import sys

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterable, List, Optional, Set

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

CLOEXEC = getattr(os, "O_CLOEXEC", 0)
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | CLOEXEC
READ = os.O_RDONLY | NOFOLLOW | CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC

UTF8 = sys.getfilesystemencoding().lower().replace("-", "") == "utf8"
WINDOWS = os.name == "nt"
_MAX_LINK = 4096  # maximum bytes of a link target on all common file systems
_FICLONE = 0x40049409
_CHUNK = 1 << 20
# Errors that another copy method would not avoid.
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


class FolderHandles:
    """Handles for the folders below a root, opened one name at a time so that no link is followed.

    In depth-first order, every folder is opened once. Few handles are kept open, so the depth is not
    limited.
    """

    MAX_OPEN = 64

    def __init__(self, path: str) -> None:
        self._handles = [("", os.open(path, FOLDER | NOFOLLOW))]

    def open(self, folder: str) -> int:
        """Return a handle for ``folder`` ("" for the root) that is valid until the next call."""
        handles = self._handles
        while handles[-1][0] and handles[-1][0] != folder and not folder.startswith(handles[-1][0] + "/"):
            os.close(handles.pop()[1])
        path, handle = handles[-1]
        remaining = folder[len(path) + 1 :] if path else folder
        for name in remaining.split("/") if remaining else ():
            handle = os.open(name, FOLDER | NOFOLLOW, dir_fd=handle)
            path = join(path, name)
            handles.append((path, handle))
            if len(handles) > self.MAX_OPEN:  # close every other handle, so that a nearby ancestor stays open
                for _, unused in handles[1:-1:2]:
                    os.close(unused)
                handles[1:-1] = handles[2:-1:2]
        return handle

    def close(self) -> None:
        while self._handles:
            os.close(self._handles.pop()[1])

    def __enter__(self) -> "FolderHandles":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def native(path: str) -> str:
    """Return a file name in the encoding of this process. mlw stores names as UTF-8 in every locale."""
    return path if UTF8 else os.fsdecode(path.encode("utf-8", "surrogateescape"))


def portable(path: str) -> str:
    """Return the UTF-8 form of a file name: the inverse of ``native``."""
    return path if UTF8 else os.fsencode(path).decode("utf-8", "surrogateescape")


def join(folder: str, name: str) -> str:
    return folder + "/" + name if folder else name


def parents(paths: Iterable[str]) -> Set[str]:
    """Return all parent folders of these paths."""
    folders: Set[str] = set()
    for path in paths:
        end = path.rfind("/")
        while end > 0 and path[:end] not in folders:
            folders.add(path[:end])
            end = path.rfind("/", 0, end)
    return folders


def points_inside(path: str, target: str) -> bool:
    """Return whether a link from ``path`` to ``target`` stays below the root, whatever other links exist there.

    ``..`` is allowed only at the beginning, because the parents of ``path`` are real folders. After a name, it is
    refused: if a link had that name, ``..`` would refer to the parent of the link's target.
    """
    try:
        length = len(os.fsencode(target))
    except UnicodeEncodeError:  # an unpaired surrogate, which no file system accepts
        return False
    if (
        not 0 < length < _MAX_LINK
        or "\0" in target
        or target.startswith("/")
        or (WINDOWS and ("\\" in target or ":" in target))
    ):
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    return climbs <= path.count("/") and ".." not in parts[climbs:]


def make_private(*paths: str) -> None:
    """Create folders that only their owner can enter. Missing parents get the default mode."""
    for path in paths:
        os.makedirs(path, 0o700, exist_ok=True)


def make_folders(handle: int, folder: str) -> None:
    """Create a folder and its parents below the folder of ``handle``."""
    for path in [*sorted(parents([folder])), folder] if folder else ():
        try:
            os.mkdir(path, 0o700, dir_fd=handle)
        except FileExistsError:
            pass


def remove(path: str) -> None:
    """Remove a folder with its contents, or a file or symbolic link. Do nothing if the path does not exist."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
        return
    folders: List[str] = []
    pending = [""]
    try:
        make_readable(path)
        with FolderHandles(path) as handles:
            while pending:
                folder = pending.pop()
                folders.append(folder)
                handle = handles.open(folder)
                pending += [join(folder, name) for name in empty_folder(handle)]
            for folder in reversed(folders[1:]):
                parent, _, name = folder.rpartition("/")
                os.rmdir(name, dir_fd=handles.open(parent))
        os.rmdir(path)
    except FileNotFoundError:
        pass


def empty_folder(handle: int) -> List[str]:
    """Remove everything except subfolders from a folder, and return the subfolders.

    Missing permissions are restored first: a script may have removed its user's permission to read or
    change a folder.
    """
    status = os.fstat(handle)
    if status.st_mode & stat.S_IRWXU != stat.S_IRWXU and status.st_uid == os.geteuid():
        os.fchmod(handle, stat.S_IRWXU)
    folders = []
    with os.scandir(handle) as listing:
        entries = list(listing)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=handle)
            continue
        folders.append(entry.name)
        make_readable(entry.name, handle)
    return folders


def make_readable(name: str, parent: Optional[int] = None) -> None:
    """Restore the owner's read permission for a folder. If it has become a link, do not follow it."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if status.st_mode & stat.S_IRUSR or not stat.S_ISDIR(status.st_mode):
        return
    if not hasattr(os, "O_PATH"):
        os.chmod(name, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | NOFOLLOW | CLOEXEC, dir_fd=parent)
    try:
        os.chmod("/proc/self/fd/%d" % handle, stat.S_IRWXU)
    finally:
        os.close(handle)


def clone(source: int, target: int) -> bool:
    """Share the blocks of ``source`` with ``target`` (copy on write). Return False if not supported."""
    if fcntl is None or not sys.platform.startswith("linux"):
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _FATAL:
            raise
        return False
    return True


def copy(source: int, target: int, size: int, blocks: int) -> None:
    """Copy ``size`` bytes into an empty file. Preserve holes if ``blocks`` indicates any."""
    if blocks * 512 >= size:
        _copy_range(source, target, 0, size)
        return
    os.ftruncate(target, size)
    start = 0
    while start < size:
        try:
            start = os.lseek(source, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole remains
                return
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        _copy_range(source, target, start, end)
        start = end


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    """Copy [start, end) to the same offset in the target: in the kernel if possible, or in chunks."""
    in_kernel = getattr(os, "copy_file_range", None)
    while start < end:
        copied = 0
        if in_kernel is not None:
            try:
                copied = in_kernel(source, target, min(end - start, 1 << 30), start, start)
            except OSError as error:
                if error.errno in _FATAL:
                    raise
            if not copied:
                in_kernel = None  # different disks, an old kernel, or a file system that only returns 0
        if in_kernel is None:
            copied = os.pwrite(target, os.pread(source, min(_CHUNK, end - start), start), start)
        if not copied:
            raise OSError(errno.EIO, "the stored file became shorter while it was copied")
        start += copied
