"""Copies files from one folder to another: whole or not at all, checked, resumable, in little memory."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import HistoryError
from ..remote.shared.tree import NEW, READ, clone, points_inside
from .beneath import Beneath, refusal
from .content import CHUNK, copy, digest, write_at
from .manifest import LINK, Output

_TRIES = 2
_NAMED = 1000
_FULL = (errno.ENOSPC, errno.EDQUOT)
# O_NONBLOCK: should a file have been swapped for a FIFO, opening it must not block.
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)
# Smaller ones would cost more than they are worth; each is compared with its digest when it is fetched again.
_SYNCED = 1 << 20

Report = Callable[[int], None]
Entries = Callable[[], Iterator[tuple[Output, str]]]  # what to copy, and under which name; asked for twice
T = TypeVar("T")


class Noted(list[T]):
    """The first of many notes, and how many there were: of 100,000 outputs each may have one."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def append(self, one: T) -> None:
        self.total += 1
        if self.total <= _NAMED:
            super().append(one)


@dataclass
class Outcome:
    """What became of the files."""

    copied: int = 0
    same: int = 0  # there already, with the right content
    size: int = 0
    links: int = 0
    exists: Noted[str] = field(default_factory=Noted)  # another thing is in the place
    failed: Noted[tuple[str, str]] = field(default_factory=Noted)
    skipped: Noted[tuple[str, str]] = field(default_factory=Noted)  # not files; told, and no failure

    @property
    def whole(self) -> bool:
        return not self.exists and not self.failed


class _Refused(Exception):
    """This file cannot be had; the others can."""


class _Exists(Exception):
    """Something else stands in the place."""


class Transfer:
    """From one folder into another.

    ``whole``: nobody sees the target before all of it is there, so that files are written under their own names;
    what is in it was left by an earlier attempt. Else each appears by itself, and what is there is the user's.
    """

    def __init__(
        self,
        source: str,
        target: Beneath,
        *,
        whole: bool,
        resumed: bool = False,
        overwrite: bool = False,
        report: Report | None = None,
    ) -> None:
        self.outcome = Outcome()
        self._source = Beneath(source)
        self._target = target
        self._whole = whole
        self._resumed = resumed
        self._overwrite = overwrite
        self._report = report or (lambda count: None)
        self._clones = True
        self._links = 0

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, entries: Entries, kept: Callable[[Output, str], None] | None = None) -> Outcome:
        """Copy all; ``kept`` is told of each that is part of the copy. Links come last: nothing is written after."""
        for one, name in entries():
            if self._attempt(self._add, one, name) and kept:
                kept(one, name)
        for one, name in entries() if self._links else ():
            if one.kind == LINK and self._leads_inside(one, name):
                self._attempt(self._link, one, name)
        return self.outcome

    def _attempt(self, do: Callable[[Output, str], bool], one: Output, name: str) -> bool:
        """What goes wrong with one output stands in the outcome, and does not keep the others from coming."""
        try:
            return do(one, name)
        except _Exists:
            self.outcome.exists.append(name)
        except _Refused as error:
            self.outcome.failed.append((one.path, str(error)))
        except OSError as error:
            if error.errno in _FULL:
                raise HistoryError(
                    "the disk for the outputs is full",
                    "free disk space and run the command again: it continues where it stopped",
                ) from error
            self.outcome.failed.append((one.path, _words(error)))
        return False

    def _add(self, one: Output, name: str) -> bool:
        if one.kind == LINK:
            if not self._leads_inside(one, name):
                self.outcome.skipped.append((one.path, f"link to {one.to}, which is outside the outputs"))
                return False
            self._links += 1
            return True
        if not one.is_file:
            self.outcome.skipped.append((one.path, one.described))
            return False
        problem = refusal(one.path) or refusal(name)
        if problem:
            raise _Refused(problem)
        self._file(one, name)
        return True

    # -- links -------------------------------------------------------------------------------------

    def _leads_inside(self, one: Output, name: str) -> bool:
        return not refusal(one.path) and not refusal(name) and points_inside(name, one.to)

    def _link(self, one: Output, path: str) -> bool:
        handle, name = self._folder(path)
        try:
            os.symlink(one.to, name, dir_fd=handle)
        except FileExistsError:
            if _link_text(handle, name) != one.to:
                if not self._overwrite and not self._whole:
                    raise _Exists from None
                os.unlink(name, dir_fd=handle)
                os.symlink(one.to, name, dir_fd=handle)
        self.outcome.links += 1
        return True

    # -- files -------------------------------------------------------------------------------------

    def _folder(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self._target.make(folder), name

    def _file(self, one: Output, name: str) -> None:
        handle, last = self._folder(name)
        part = last if self._whole else _part_name(one, name)
        if not self._whole and self._is_there(handle, last, one):
            if self._resumed:
                _drop(handle, part)  # killed when the file had its name, and the part not yet gone
            self.outcome.same += 1
            return
        parent, own = self._source.parent(one.path)
        try:
            source = os.open(own, _OPEN, dir_fd=parent)
        except OSError as error:
            raise _Refused(f"no longer a file of the run ({_words(error)})") from None
        try:
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode):
                raise _Refused("no longer a file")
            if one.sha256 and found.st_size < CHUNK:
                new = self._bring_small(source, found, one.sha256, handle, part)
            else:
                new = self._bring_large(source, one, handle, part)
        finally:
            os.close(source)
        if not self._whole:
            self._publish(handle, part, last)
        if new:
            self.outcome.copied += 1
        else:
            self.outcome.same += 1

    def _is_there(self, handle: int, name: str, one: Output) -> bool:
        """Whether the very file is there already; _Exists if something else is and must stay."""
        try:
            found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.S_ISREG(found.st_mode) and one.sha256 and found.st_size == one.size:
            there = os.open(name, _OPEN, dir_fd=handle)
            try:
                if digest(there, one.size, self._count).hexdigest() == one.sha256:
                    return True
            finally:
                os.close(there)
        if not self._overwrite or stat.S_ISDIR(found.st_mode):
            raise _Exists
        return False

    def _bring_small(self, source: int, found: os.stat_result, sha256: str, handle: int, part: str) -> bool:
        """Checked before anything is written; False if an earlier attempt had brought it."""
        data = os.pread(source, found.st_size + 1, 0)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise _Refused("content differs from what was recorded when the run ended")
        try:
            target = os.open(part, NEW, _mode(found), dir_fd=handle)
        except FileExistsError:
            if _holds(handle, part, data):
                return False
            os.unlink(part, dir_fd=handle)
            target = os.open(part, NEW, _mode(found), dir_fd=handle)
        try:
            write_at(target, data, 0)
        finally:
            os.close(target)
        self._count(len(data))
        return True

    def _bring_large(self, source: int, one: Output, handle: int, part: str) -> bool:
        for _ in range(_TRIES):
            if self._fetch(source, one, handle, part):
                return True
        raise _Refused(
            "content differs from what was recorded when the run ended" if one.sha256 else "changed while copying"
        )

    def _fetch(self, source: int, one: Output, handle: int, part: str) -> bool:
        """Make the part whole; False, and then there is none, if its content is not what it should be."""
        before = os.fstat(source)
        target = _open_part(part, handle, _mode(before))
        try:
            if not one.sha256:
                os.ftruncate(target, 0)  # nothing would tell that its beginning is of another time
            if self._clones and before.st_size and not os.fstat(target).st_size:
                self._clones = clone(source, target)
            found = copy(source, target, before.st_size, self._count)
            after = os.fstat(source)
            if one.sha256:
                right = found == one.sha256
            else:
                right = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
            if right and before.st_size >= _SYNCED:
                os.fsync(target)
            if not right:
                os.unlink(part, dir_fd=handle)
            return right
        finally:
            os.close(target)

    def _count(self, size: int) -> None:
        self.outcome.size += size
        self._report(self.outcome.size)

    def _publish(self, handle: int, part: str, name: str) -> None:
        if self._overwrite:
            os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)  # over a link, not through it
            return
        try:
            # Unlike a rename, this replaces nothing that appeared meanwhile.
            os.link(part, name, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)
        except FileExistsError:
            os.unlink(part, dir_fd=handle)
            raise _Exists from None
        except OSError:  # a disk without hard links
            if _there(handle, name):
                os.unlink(part, dir_fd=handle)
                raise _Exists from None
            os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)
            return
        os.unlink(part, dir_fd=handle)


def _drop(handle: int, part: str) -> None:
    try:
        os.unlink(part, dir_fd=handle)
    except FileNotFoundError:
        pass


def _there(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _part_name(one: Output, name: str) -> str:
    """The same for the same file, so that a later attempt goes on with it; short, whatever the name is."""
    key = hashlib.sha256(f"{name}\0{one.sha256}".encode("utf-8", "surrogateescape")).hexdigest()
    return f".mlw-{key[:24]}.part"


def _open_part(part: str, handle: int, mode: int) -> int:
    """The part of an earlier attempt, else a new one. Whoever writes it holds the lock of the whole download."""
    try:
        return os.open(part, (NEW & ~os.O_WRONLY) | os.O_RDWR, mode, dir_fd=handle)
    except FileExistsError:
        target = os.open(part, (_OPEN & ~os.O_RDONLY) | os.O_RDWR, dir_fd=handle)
    found = os.fstat(target)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(target)
        raise _Refused(f"cannot replace {part}")
    return target


def _holds(handle: int, name: str, data: bytes) -> bool:
    try:
        there = os.open(name, _OPEN, dir_fd=handle)
    except OSError:
        return False  # a link, or nothing any more
    try:
        found = os.fstat(there)
        return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and os.pread(there, len(data) + 1, 0) == data
    finally:
        os.close(there)


def _link_text(handle: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=handle)
    except OSError:
        return None  # not a link


def _mode(found: os.stat_result) -> int:
    return 0o755 if found.st_mode & 0o100 else 0o644


def _words(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "blocked by an existing link or file"
    return error.strerror or str(error)
