"""Write files to ``outputs/`` of a running script, without following links that the script creates there."""

from __future__ import annotations

import errno
import os
import re
import stat

from ..shared.folder_tree import FOLDER, NEW, NOFOLLOW, READ, copy, native, portable

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Callable, List, Sequence

_TEMPORARY = ".mlw-tensorboard.part"
_UNSAFE = re.compile(r"[^\w.+=@ -]")
_MAX_DEPTH = 8
_MAX_PART = 180  # maximum bytes of a file name, without suffix
_MAX_SAME_NAME = 1000  # maximum files with the same name and different numbers
_CHUNK = 1 << 20


def safe_parts(name: str) -> "List[str]":
    """Convert the name of an image or a text to the parts of a safe relative path."""
    parts = name.split("/")
    if len(parts) > _MAX_DEPTH or not all(part.strip(" .") for part in parts):
        parts = [name]
    return [_safe_part(part) for part in parts]


def _safe_part(part: str) -> str:
    safe = _UNSAFE.sub("_", part).strip(" .")[:_MAX_PART] or "_"
    while len(safe.encode("utf-8", "replace")) > _MAX_PART:
        safe = safe[:-1]
    return safe


class OutputWriter:
    """Writer of files below ``outputs/`` in a working folder. The methods raise OSError and ValueError."""

    def __init__(self, work: str) -> None:
        self._work = work

    def write(self, parts: "Sequence[str]", suffix: str, data: "bytes | memoryview") -> str:
        """Store data and return its path below ``outputs/``. If another file has the name, a number is added."""

        def fill(descriptor: int) -> None:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]

        return self._store([native(part) for part in parts], suffix, fill)

    def copy(self, parts: "Sequence[str]", source: int) -> str:
        """Store the content of an open file, and return its path below ``outputs/``."""
        status = os.fstat(source)
        return self._store(parts, "", lambda target: copy(source, target, status.st_size, status.st_blocks))

    def _store(self, parts: "Sequence[str]", suffix: str, fill: "Callable[[int], None]") -> str:
        handle = self._open_folder(parts[:-1])
        try:
            _remove(handle)  # left by a supervisor that was killed
            descriptor = os.open(_TEMPORARY, NEW, 0o666, dir_fd=handle)
            try:
                fill(descriptor)
            finally:
                os.close(descriptor)
            name = _publish(handle, parts[-1], suffix)
        finally:
            _remove(handle)
            os.close(handle)
        return portable("/".join([*parts[:-1], name]))

    def _open_folder(self, parts: "Sequence[str]") -> int:
        """Open a folder below ``outputs/``, one name at a time, and create what is missing."""
        handle = os.open(self._work, FOLDER | NOFOLLOW)
        for name in ("outputs", *parts):
            try:
                try:
                    os.mkdir(name, dir_fd=handle)
                except FileExistsError:
                    pass
                child = os.open(name, FOLDER | NOFOLLOW, dir_fd=handle)
            finally:
                os.close(handle)
            handle = child
        return handle


def _publish(handle: int, stem: str, suffix: str) -> str:
    """Give the temporary file its name, and return it. A file with the same content is not stored twice."""
    for number in range(1, _MAX_SAME_NAME):
        name = stem + ("-%d" % number if number > 1 else "") + suffix
        try:
            os.link(_TEMPORARY, name, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)
            return name
        except FileExistsError:
            if _has_same_content(handle, name):
                return name
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            if not _exists(handle, name):  # a file system without hard links
                os.rename(_TEMPORARY, name, src_dir_fd=handle, dst_dir_fd=handle)
                return name
            if _has_same_content(handle, name):
                return name
    raise OSError(errno.EEXIST, "too many files with the same name")


def _has_same_content(handle: int, name: str) -> bool:
    try:
        other = os.open(name, READ | getattr(os, "O_NONBLOCK", 0), dir_fd=handle)
    except OSError:
        return False
    try:
        mine = os.open(_TEMPORARY, READ, dir_fd=handle)
        try:
            first, second = os.fstat(mine), os.fstat(other)
            if not stat.S_ISREG(second.st_mode) or first.st_size != second.st_size:
                return False
            return all(
                os.pread(mine, _CHUNK, start) == os.pread(other, _CHUNK, start)
                for start in range(0, first.st_size, _CHUNK)
            )
        finally:
            os.close(mine)
    finally:
        os.close(other)


def _exists(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove(handle: int) -> None:
    try:
        os.unlink(_TEMPORARY, dir_fd=handle)
    except FileNotFoundError:
        pass
