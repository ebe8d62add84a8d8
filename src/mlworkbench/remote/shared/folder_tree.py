"""Folder trees without following a link: handles of folders, copies of files, removal."""

from __future__ import annotations

import errno
import os
import stat
import sys

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
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
_LONGEST_LINK = 4096  # bytes of what a link says, on every file system in use
_FICLONE = 0x40049409
_CHUNK = 1 << 20
# What another way of copying would not cure.
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


class Folders:
    """Handles of the folders below one root, opened name by name, so that no link is ever followed.

    Asked in depth-first order it opens every folder once. Few handles are kept, so depth has no limit.
    """

    KEPT = 64

    def __init__(self, path: str) -> None:
        self._open = [("", os.open(path, FOLDER | NOFOLLOW))]

    def open(self, folder: str) -> int:
        """The handle of ``folder`` ("" is the root), valid until the next call."""
        kept = self._open
        while kept[-1][0] and kept[-1][0] != folder and not folder.startswith(kept[-1][0] + "/"):
            os.close(kept.pop()[1])
        path, handle = kept[-1]
        rest = folder[len(path) + 1 :] if path else folder
        for name in rest.split("/") if rest else ():
            handle = os.open(name, FOLDER | NOFOLLOW, dir_fd=handle)
            path = join(path, name)
            kept.append((path, handle))
            if len(kept) > self.KEPT:  # every second one goes, so that the way back up stays short
                for _, spare in kept[1:-1:2]:
                    os.close(spare)
                kept[1:-1] = kept[2:-1:2]
        return handle

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop()[1])

    def __enter__(self) -> "Folders":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def native(path: str) -> str:
    """A name as this process spells it. Our files hold names as UTF-8 whatever the locale is."""
    return path if UTF8 else os.fsdecode(path.encode("utf-8", "surrogateescape"))


def portable(path: str) -> str:
    """The opposite of ``native``."""
    return path if UTF8 else os.fsencode(path).decode("utf-8", "surrogateescape")


def join(folder: str, name: str) -> str:
    return folder + "/" + name if folder else name


def parents(paths: Iterable[str]) -> Set[str]:
    """All folders above these paths."""
    found: Set[str] = set()
    for path in paths:
        end = path.rfind("/")
        while end > 0 and path[:end] not in found:
            found.add(path[:end])
            end = path.rfind("/", 0, end)
    return found


def points_inside(path: str, to: str) -> bool:
    """Whether a link at ``path`` stays below the folder, whatever other links of this kind there are.

    ``..`` counts only at the beginning, where it climbs real folders: after a name it would climb from wherever
    a link with that name leads.
    """
    try:
        longest = len(os.fsencode(to))
    except UnicodeEncodeError:  # half a character, which no disk takes
        return False
    if not 0 < longest < _LONGEST_LINK or "\0" in to or to.startswith("/") or (WINDOWS and ("\\" in to or ":" in to)):
        return False
    parts = [part for part in to.split("/") if part not in ("", ".")]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    return climbs <= path.count("/") and ".." not in parts[climbs:]


def make_private(*paths: str) -> None:
    """Make folders that only their owner can enter; those further up must exist or are made as usual."""
    for path in paths:
        os.makedirs(path, 0o700, exist_ok=True)


def make_folders(handle: int, folder: str) -> None:
    """Make a folder and those above it, below the folder of ``handle``."""
    for path in [*sorted(parents([folder])), folder] if folder else ():
        try:
            os.mkdir(path, 0o700, dir_fd=handle)
        except FileExistsError:
            pass


def remove(path: str) -> None:
    """Remove a folder of ours with all that is in it, or whatever else is in its place."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
        return
    found: List[str] = []
    pending = [""]
    try:
        open_up(path)
        with Folders(path) as handles:
            while pending:
                folder = pending.pop()
                found.append(folder)
                handle = handles.open(folder)
                pending += [join(folder, name) for name in empty_folder(handle)]
            for folder in reversed(found[1:]):
                parent, _, name = folder.rpartition("/")
                os.rmdir(name, dir_fd=handles.open(parent))
        os.rmdir(path)
    except FileNotFoundError:
        pass


def empty_folder(handle: int) -> List[str]:
    """Remove all that is in a folder but the folders, which are returned. Nothing closes itself against that.

    A script may have taken away its user's own right to look into a folder, or to change it.
    """
    facts = os.fstat(handle)
    if facts.st_mode & stat.S_IRWXU != stat.S_IRWXU and facts.st_uid == os.geteuid():
        os.fchmod(handle, stat.S_IRWXU)
    inner = []
    with os.scandir(handle) as listing:
        entries = list(listing)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=handle)
            continue
        inner.append(entry.name)
        open_up(entry.name, handle)
    return inner


def open_up(name: str, parent: Optional[int] = None) -> None:
    """Give its owner the right to read a folder, if it is gone; a link that was put in its place is not followed."""
    facts = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if facts.st_mode & stat.S_IRUSR or not stat.S_ISDIR(facts.st_mode):
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
    """Let ``target`` share the blocks of ``source`` (copy on write); False where the disk cannot do that."""
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
    """Copy ``size`` bytes into an empty file; where ``blocks`` tells of holes they stay holes."""
    if blocks * 512 >= size:
        _copy_range(source, target, 0, size)
        return
    os.ftruncate(target, size)
    start = 0
    while start < size:
        try:
            start = os.lseek(source, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        _copy_range(source, target, start, end)
        start = end


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    """Copy [start, end) to the same place of the target: in the kernel where that works, else through memory."""
    in_kernel = getattr(os, "copy_file_range", None)
    while start < end:
        done = 0
        if in_kernel is not None:
            try:
                done = in_kernel(source, target, min(end - start, 1 << 30), start, start)
            except OSError as error:
                if error.errno in _FATAL:
                    raise
            if not done:
                in_kernel = None  # another disk, an old kernel, or a file system that only answers 0
        if in_kernel is None:
            done = os.pwrite(target, os.pread(source, min(_CHUNK, end - start), start), start)
        if not done:
            raise OSError(errno.EIO, "the stored file became shorter while it was copied")
        start += done
