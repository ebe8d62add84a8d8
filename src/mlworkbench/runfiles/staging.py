"""Where a download lies until it is whole, so that the destination never looks finished while it is not.

A destination that does not exist yet is filled beside its place, in ``NAME.mlw-KEY.part/``, and appears by one rename.
One that exists holds the mark ``.mlw-unfinished`` for as long; its files appear one by one, each of them whole.
The same command finds what a killed one has left, and goes on with it. A lock on either keeps two from doing so
at once; the kernel lets go of it when its holder dies.
"""

from __future__ import annotations

import hashlib
import os
import stat

from ..errors import HistoryError, UsageError
from ..remote.shared.file_lock import try_lock
from ..remote.shared.tree import CLOEXEC, FOLDER, NOFOLLOW
from .beneath import Beneath, remove_at

MARK = ".mlw-unfinished"
_FILES = "files"
_TEXT = b"A download of mlw into this folder is not finished. The same command goes on where it stopped.\n"


class Stage:
    """A destination under way. ``target`` is where files go; ``whole`` tells whether all of it appears at once.

    ``resumed``: an earlier command was killed here.
    """

    def __init__(self, place: str, key: str, fresh: bool = False) -> None:
        self.place = os.path.realpath(place)  # a link to a folder is the user's own; below it none is followed
        parent, name = os.path.split(self.place)
        self._part = part_name(name, key)
        os.makedirs(parent, exist_ok=True)
        self._parent = os.open(parent, FOLDER)
        self._held = -1
        self.resumed = False
        try:
            while not self._begin(fresh):
                pass
        except BaseException:
            self.close()
            raise

    def _begin(self, fresh: bool) -> bool:
        """False if another command has finished meanwhile with what was found here."""
        name = os.path.basename(self.place)
        self.whole = not _there(self._parent, name)
        if not self.whole:
            if not os.path.isdir(self.place):
                raise UsageError(f"cannot use {self.place}: not a folder", "choose another folder with -d")
            self.target = Beneath(self.place)
            self._drop_old()
            taken = self._take(self.target.open(""), MARK, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC)
            if not taken:
                self.target.close()
            return taken
        _mkdir(self._part, 0o700, self._parent)
        if not self._take(self._parent, self._part, FOLDER | NOFOLLOW):
            return False
        if fresh:
            remove_at(self._held, _FILES)
        _mkdir(_FILES, 0o777, self._held)
        self.target = Beneath(_FILES, self._held)
        return True

    def _take(self, parent: int, name: str, flags: int) -> bool:
        held = os.open(name, flags, 0o600, dir_fd=parent)
        if not try_lock(held):
            os.close(held)
            raise HistoryError(f"another command is downloading to {self.place}", "wait until it finishes")
        found = os.fstat(held)
        try:
            current = os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino == found.st_ino
        except FileNotFoundError:
            current = False
        if not current:
            os.close(held)
            return False
        self._held = held
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            raise UsageError(f"{name} in {self.place} belongs to another user", "choose another folder with -d")
        self.resumed = found.st_size > 0
        if stat.S_ISREG(found.st_mode) and not self.resumed:
            os.write(held, _TEXT)
        return True

    def _drop_old(self) -> None:
        """What was begun beside the place before somebody made it is of no use any more."""
        if _there(self._parent, self._part):
            held = os.open(self._part, FOLDER | NOFOLLOW, dir_fd=self._parent)
            try:
                if try_lock(held):
                    remove_at(self._parent, self._part)
            finally:
                os.close(held)

    def publish(self) -> None:
        """All that was to come is there."""
        if not self.whole:
            os.unlink(MARK, dir_fd=self.target.open(""))
            return
        try:
            os.rename(_FILES, os.path.basename(self.place), src_dir_fd=self._held, dst_dir_fd=self._parent)
        except OSError as error:
            raise HistoryError(
                f"{self.place} was created by another program ({error.strerror})",
                "run the command again, or choose another folder",
            ) from error
        os.rmdir(self._part, dir_fd=self._parent)

    def close(self) -> None:
        if hasattr(self, "target"):
            self.target.close()
        for descriptor in (self._held, self._parent):
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stage_key(*words: str) -> str:
    """The same for the same work, so that a repeated command finds what it had begun."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def part_name(name: str, key: str) -> str:
    return os.fsdecode(os.fsencode(name)[:200]) + f".mlw-{key}.part"


def _mkdir(name: str, mode: int, parent: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        pass


def _there(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
