"""Copies files from one folder to another: whole or not at all, checked, resumable, in little memory."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import HistoryError
from ..remote.tree import NEW, READ, clone
from .beneath import Beneath, points_inside, refusal
from .manifest import LINK, Output

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_TRIES = 2
_FULL = (errno.ENOSPC, errno.EDQUOT)
# O_NONBLOCK: should a file have been swapped for a FIFO, opening it must not block.
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)
# Smaller ones would cost more than they are worth; each is compared with its digest when it is fetched again.
_SYNCED = 1 << 20

Report = Callable[[int], None]


@dataclass
class Outcome:
    """What became of the files."""

    copied: int = 0
    same: int = 0  # there already, with the right content
    size: int = 0
    links: int = 0
    exists: list[str] = field(default_factory=list)  # another thing is in the place
    failed: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)  # not files; told, and no failure

    @property
    def whole(self) -> bool:
        return not self.exists and not self.failed


class _Refused(Exception):
    """This file cannot be had; the others can."""


class _Exists(Exception):
    """Something else stands in the place."""


class Transfer:
    """From one folder into another. Use it in a ``with``; links are made by ``finish``, after the last file."""

    def __init__(self, source: str, target: str, *, overwrite: bool = False, report: Report | None = None) -> None:
        self.outcome = Outcome()
        self._source = Beneath(source)
        try:
            self._target = Beneath(target)
        except OSError:
            self._source.close()
            raise
        self._place = target
        self._overwrite = overwrite
        self._report = report or (lambda count: None)
        self._clones = True
        self._links: list[tuple[str, str]] = []

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._target.close()

    def add(self, one: Output, name: str | None = None) -> None:
        """Copy one output, as ``name`` if that differs. What goes wrong with it stands in the outcome."""
        name = one.path if name is None else name
        try:
            problem = refusal(one.path) or refusal(name)
            if one.kind == LINK:
                self._note_link(one, name, problem)
            elif not one.is_file:
                self.outcome.skipped.append((one.path, one.kind))
            elif problem:
                raise _Refused(problem)
            else:
                self._file(one, name)
        except _Exists:
            self.outcome.exists.append(name)
        except _Refused as error:
            self.outcome.failed.append((one.path, str(error)))
        except OSError as error:
            if error.errno in _FULL:
                text = f"the disk that holds {self._place} is full"
                raise HistoryError(text, "make room and run the command again: it goes on where it stopped") from error
            self.outcome.failed.append((one.path, _words(error)))

    def finish(self) -> Outcome:
        """Links come last: nothing is written once they exist."""
        for path, to in self._links:
            try:
                handle, name = self._folder(path)
                self._link(handle, name, to)
                self.outcome.links += 1
            except _Exists:
                self.outcome.exists.append(path)
            except OSError as error:
                self.outcome.failed.append((path, _words(error)))
        return self.outcome

    def _note_link(self, one: Output, name: str, problem: str | None) -> None:
        if problem or not points_inside(name, one.to):
            self.outcome.skipped.append((one.path, f"link to {one.to}, which is outside of the outputs"))
        else:
            self._links.append((name, one.to))

    def _link(self, handle: int, name: str, to: str) -> None:
        try:
            os.symlink(to, name, dir_fd=handle)
        except FileExistsError:
            try:
                if os.readlink(name, dir_fd=handle) == to:
                    return
            except OSError:
                pass  # not a link
            if not self._overwrite:
                raise _Exists from None
            os.unlink(name, dir_fd=handle)
            os.symlink(to, name, dir_fd=handle)

    def _folder(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self._target.make(folder), name

    def _file(self, one: Output, name: str) -> None:
        handle, last = self._folder(name)
        if self._is_there(handle, last, one):
            self.outcome.same += 1
            return
        parent, own = self._source.parent(one.path)
        try:
            source = os.open(own, _OPEN, dir_fd=parent)
        except OSError as error:
            raise _Refused(f"is no longer a file of the run ({_words(error)})") from None
        try:
            if not stat.S_ISREG(os.fstat(source).st_mode):
                raise _Refused("is no longer a file")
            part = _part_name(one, name)
            for _ in range(_TRIES):
                if self._fetch(source, one, handle, part):
                    break
            else:
                raise _Refused("is not what was recorded at the run's end" if one.sha256 else "changed while copying")
        finally:
            os.close(source)
        self._publish(handle, part, last)
        self.outcome.copied += 1

    def _is_there(self, handle: int, name: str, one: Output) -> bool:
        """Whether the very file is there already; _Exists if something else is and must stay."""
        try:
            found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.S_ISREG(found.st_mode) and one.sha256 and found.st_size == one.size:
            there = os.open(name, _OPEN, dir_fd=handle)
            try:
                if self._digest(there, one.size).hexdigest() == one.sha256:
                    return True
            finally:
                os.close(there)
        if not self._overwrite or stat.S_ISDIR(found.st_mode):
            raise _Exists
        return False

    def _fetch(self, source: int, one: Output, handle: int, part: str) -> bool:
        """Make the part whole; False, and then there is none, if its content is not what it should be."""
        before = os.fstat(source)
        target = _open_part(part, handle, 0o755 if before.st_mode & 0o100 else 0o644)
        try:
            if not one.sha256:
                os.ftruncate(target, 0)  # nothing would tell that its beginning is of another time
            digest = self._copy(source, target, before.st_size)
            after = os.fstat(source)
            if one.sha256:
                right = digest == one.sha256
            else:
                right = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
            if right and before.st_size >= _SYNCED:
                os.fsync(target)
            if not right:
                os.unlink(part, dir_fd=handle)
            return right
        finally:
            os.close(target)

    def _copy(self, source: int, target: int, size: int) -> str:
        have = os.fstat(target).st_size
        if not have and size and self._clones:
            self._clones = clone(source, target)
            have = os.fstat(target).st_size
        digest = self._digest(target, have)  # what an earlier attempt left is read, not believed
        at = have
        while at < size:
            data = os.pread(source, min(_CHUNK, size - at), at)
            if not data:
                break
            digest.update(data)
            if data != _ZEROS[: len(data)]:  # else a hole, most likely: leave one
                _write(target, data, at)
            at += len(data)
            self._count(len(data))
        os.ftruncate(target, at)
        return digest.hexdigest()

    def _digest(self, file: int, size: int) -> hashlib._Hash:
        digest = hashlib.sha256()
        at = 0
        while at < size:
            data = os.pread(file, min(_CHUNK, size - at), at)
            if not data:
                break
            digest.update(data)
            at += len(data)
            self._count(len(data))
        return digest

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
    """The part of an earlier attempt, else a new one; _Refused while another process writes it."""
    try:
        target = os.open(part, (NEW & ~os.O_WRONLY) | os.O_RDWR, mode, dir_fd=handle)
    except FileExistsError:
        target = os.open(part, (_OPEN & ~os.O_RDONLY) | os.O_RDWR, dir_fd=handle)
    try:
        if fcntl is not None:
            fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(target)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise _Refused(f"{part} is in the way")
        # Whoever had the lock before us may have given the file its name: then it is not ours to write.
        if os.stat(part, dir_fd=handle, follow_symlinks=False).st_ino != found.st_ino:
            raise _Refused("is being fetched by another command")
    except BlockingIOError:
        os.close(target)
        raise _Refused("is being fetched by another command") from None
    except BaseException:
        os.close(target)
        raise
    return target


def _write(target: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(target, view, at)
        view, at = view[done:], at + done


def _words(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a link or a file is in the way"
    return error.strerror or str(error)
