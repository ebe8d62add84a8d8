"""Staging of downloads, so that a destination never looks complete before it is.

A new destination is filled in ``NAME.mlw-KEY.part/`` next to it and published by a single rename.
An existing destination contains the marker ``.mlw-unfinished`` during the download, and each file
appears in it only when complete. Repeating the command resumes a killed download. A lock prevents
two commands from doing so at once; the kernel releases it when the process ends.
"""

from __future__ import annotations

import hashlib
import os
import stat

from ..errors import HistoryError, UsageError
from ..remote.shared.file_lock import try_lock
from ..remote.shared.folder_tree import CLOEXEC, FOLDER, NOFOLLOW
from .safe_paths import SafeFolders, remove_at

MARK = ".mlw-unfinished"
_FILES = "files"
_TEXT = b"A download by mlw into this folder is incomplete. Run the same command again to resume it.\n"


class Staging:
    """A destination during a download.

    ``target``: folder for the files. ``is_new``: the whole destination is published at once.
    ``resumed``: an earlier download to this destination was killed.
    """

    def __init__(self, destination: str, key: str, fresh: bool = False) -> None:
        # The destination itself may be a link; links below it are not followed.
        self.destination = os.path.realpath(destination)
        parent, name = os.path.split(self.destination)
        self._part = part_name(name, key)
        os.makedirs(parent, exist_ok=True)
        self._parent = os.open(parent, FOLDER)
        self._locked = -1
        self.resumed = False
        try:
            while not self._start(fresh):
                pass
        except BaseException:
            self.close()
            raise

    def _start(self, fresh: bool) -> bool:
        """Lock the destination. Return False if another command finished with it in the meantime."""
        name = os.path.basename(self.destination)
        self.is_new = not _exists(self._parent, name)
        if not self.is_new:
            if not os.path.isdir(self.destination):
                raise UsageError(f"cannot use {self.destination}: not a folder", "choose another folder with -d")
            self.target = SafeFolders(self.destination)
            self._remove_stale()
            is_locked = self._lock(self.target.open(""), MARK, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC)
            if not is_locked:
                self.target.close()
            return is_locked
        _mkdir(self._part, 0o700, self._parent)
        if not self._lock(self._parent, self._part, FOLDER | NOFOLLOW):
            return False
        if fresh:
            remove_at(self._locked, _FILES)
        _mkdir(_FILES, 0o777, self._locked)
        self.target = SafeFolders(_FILES, self._locked)
        return True

    def _lock(self, parent: int, name: str, flags: int) -> bool:
        descriptor = os.open(name, flags, 0o600, dir_fd=parent)
        if not try_lock(descriptor):
            os.close(descriptor)
            raise HistoryError(f"another command is downloading to {self.destination}", "wait until it finishes")
        status = os.fstat(descriptor)
        try:
            is_current = os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino == status.st_ino
        except FileNotFoundError:
            is_current = False
        if not is_current:
            os.close(descriptor)
            return False
        self._locked = descriptor
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise UsageError(f"{name} in {self.destination} belongs to another user", "choose another folder with -d")
        self.resumed = status.st_size > 0
        if stat.S_ISREG(status.st_mode) and not self.resumed:
            os.write(descriptor, _TEXT)
        return True

    def _remove_stale(self) -> None:
        """Remove a partial folder that was created before the destination existed."""
        if _exists(self._parent, self._part):
            descriptor = os.open(self._part, FOLDER | NOFOLLOW, dir_fd=self._parent)
            try:
                if try_lock(descriptor):
                    remove_at(self._parent, self._part)
            finally:
                os.close(descriptor)

    def publish(self) -> None:
        """Publish the complete download."""
        if not self.is_new:
            os.unlink(MARK, dir_fd=self.target.open(""))
            return
        try:
            os.rename(_FILES, os.path.basename(self.destination), src_dir_fd=self._locked, dst_dir_fd=self._parent)
        except OSError as error:
            raise HistoryError(
                f"{self.destination} was created by another program ({error.strerror})",
                "run the command again, or choose another folder",
            ) from error
        os.rmdir(self._part, dir_fd=self._parent)

    def close(self) -> None:
        if hasattr(self, "target"):
            self.target.close()
        for descriptor in (self._locked, self._parent):
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def staging_key(*parts: str) -> str:
    """Return a key that depends only on the work to do, so that a repeated command can resume."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def part_name(name: str, key: str) -> str:
    return os.fsdecode(os.fsencode(name)[:200]) + f".mlw-{key}.part"


def _mkdir(name: str, mode: int, parent: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        pass


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
