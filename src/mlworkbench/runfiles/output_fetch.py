"""Outputs of a run on another machine → the run's folder at home. Each file whole or not at all, resumable.

What comes is hostile until its digest is right: names are looked up by handles, a file gets its name only when
its content is what the run's list of outputs says, and no more bytes are taken for it than the list declares.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import HistoryError, HostError
from ..remote.shared.tree import NEW, NOFOLLOW, points_inside
from .beneath import Beneath, refusal
from .content import write_sparse
from .manifest import LINK, Output
from .room import require_room
from .transfer import Outcome

_BATCH_FILES, _BATCH_BYTES = 2000, 256 * 1024 * 1024
_CHUNK = 1 << 20

# From (path, offset, declared size) to the index in that list and the next bytes of the file, file after file.
Ask = Callable[[Sequence[tuple[str, int, int]]], Iterator[tuple[int, bytes]]]


@dataclass(frozen=True)
class _Wanted:
    one: Output
    part: str
    have: int

    @property
    def lacks(self) -> int:
        return self.one.size - self.have


class Incoming:
    """Into one folder, which is ours: no script of the run ever sees it."""

    def __init__(self, folder: str, ask: Ask, report: Callable[[int], None]) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.outcome = Outcome()
        self._folder = folder
        self._target = Beneath(folder)
        self._ask = ask
        self._report = report
        self._hashes: dict[str, hashlib._Hash] = {}  # of parts that came from their start, by name

    def fetch(self, outputs: Iterable[Output]) -> Outcome:
        """Bring what is not here yet. What goes wrong with one file stands in the outcome."""
        links: list[Output] = []
        batch: list[_Wanted] = []
        size = 0
        try:
            for one in outputs:
                if one.kind == LINK:
                    links.append(one)
                    continue
                wanted = self._wanted(one)
                if wanted is None:
                    continue
                batch.append(wanted)
                size += wanted.lacks
                if len(batch) >= _BATCH_FILES or size >= _BATCH_BYTES:
                    self._bring(batch)
                    batch, size = [], 0
            self._bring(batch)
            self._make_links(links)
        except OSError as error:
            raise HistoryError(
                f"cannot write outputs to {self._folder}: {error.strerror}",
                "free disk space and run the command again: it continues where it stopped",
            ) from error
        finally:
            self._target.close()
        return self.outcome

    def _wanted(self, one: Output) -> _Wanted | None:
        problem = refusal(one.path)
        if not one.is_file:
            self.outcome.skipped.append((one.path, one.described))
        elif problem:
            self.outcome.failed.append((one.path, problem))
        else:
            there = self._target.look(one.path)
            if there is not None and there.st_size == one.size:
                self.outcome.same += 1
                self._count(one.size)
                return None
            part = _part(one)
            begun = self._target.look(part)
            # Without a digest nothing would tell that the beginning is of another time.
            whole = begun is not None and bool(one.sha256) and begun.st_size <= one.size
            return _Wanted(one, part, begun.st_size if begun and whole else 0)
        return None

    def _bring(self, batch: list[_Wanted]) -> None:
        """One question for many files; those whose content was wrong are asked for once more, from the start."""
        self._pour(batch)
        again = [_Wanted(wanted.one, wanted.part, 0) for wanted in batch if not self._finish(wanted)]
        self._pour(again)
        for wanted in again:
            if not self._finish(wanted):
                self.outcome.failed.append(
                    (wanted.one.path, "content differs from what was recorded when the run ended")
                )

    def _pour(self, batch: list[_Wanted]) -> None:
        """The bytes of a batch into its parts, as they come; what comes from the start is hashed on the way."""
        if not batch:
            return
        require_room(self._folder, sum(wanted.lacks for wanted in batch), "the next part of the outputs")
        at, file, room, position = -1, -1, 0, 0
        try:
            for index, data in self._ask([(wanted.one.path, wanted.have, wanted.one.size) for wanted in batch]):
                if not max(at, 0) <= index < len(batch):
                    raise HostError("the target sent an unrequested file")
                if index != at:
                    _close(file, position)
                    at, file, room, position = index, -1, batch[index].lacks, batch[index].have
                    file = self._open(batch[index])
                room -= len(data)
                if room < 0:
                    raise _too_much(batch[index].one)
                write_sparse(file, data, position)
                position += len(data)
                if not batch[index].have:
                    self._hashes.setdefault(batch[index].part, hashlib.sha256()).update(data)
                self._count(len(data))
        finally:
            _close(file, position)

    def _open(self, wanted: _Wanted) -> int:
        folder, _, name = wanted.part.rpartition("/")
        handle = self._target.make(folder, 0o700)
        file = os.open(name, (NEW & ~os.O_EXCL) | NOFOLLOW, 0o644, dir_fd=handle)
        self._hashes.pop(wanted.part, None)
        os.ftruncate(file, wanted.have)
        return file

    def _finish(self, wanted: _Wanted) -> bool:
        """Give a part its name if its content is right; else it is removed."""
        one = wanted.one
        folder, _, name = one.path.rpartition("/")
        handle = self._target.make(folder, 0o700)
        part = wanted.part.rpartition("/")[2]
        file = os.open(part, os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o644, dir_fd=handle)
        try:
            size = os.fstat(file).st_size
            known = self._hashes.pop(wanted.part, None)
            right = size == one.size and (not one.sha256 or (known or _digest(file)).hexdigest() == one.sha256)
            if right:
                if size >= _CHUNK:  # smaller ones are compared with their digests if they are ever in doubt
                    os.fsync(file)
                os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)
                self.outcome.copied += 1
                return True
            os.unlink(part, dir_fd=handle)
        finally:
            os.close(file)
        return False

    def _make_links(self, links: list[Output]) -> None:
        """Links come last: nothing is written once they exist."""
        for one in links:
            if refusal(one.path) or not points_inside(one.path, one.to):
                self.outcome.skipped.append((one.path, f"link to {one.to}, which is outside the outputs"))
                continue
            folder, _, name = one.path.rpartition("/")
            try:
                os.symlink(one.to, name, dir_fd=self._target.make(folder, 0o700))
                self.outcome.links += 1
            except FileExistsError:
                self.outcome.same += 1

    def _count(self, size: int) -> None:
        self.outcome.size += size
        self._report(self.outcome.size)


def _close(file: int, size: int) -> None:
    """Zeros at the end of what came were not written: its size tells how much that was."""
    if file >= 0:
        try:
            os.ftruncate(file, size)
        finally:
            os.close(file)


def _too_much(one: Output) -> HostError:
    return HostError(
        f"the target sent more of {one.path[:200]!a} than the {one.size:,} bytes in the list of outputs",
        "the rest was discarded; if you trust the machine, try again with 'mlw history download'",
    )


def _part(one: Output) -> str:
    """Beside the file, and the same for the same content, so that a later attempt goes on with it."""
    folder, slash, name = one.path.rpartition("/")
    key = hashlib.sha256(f"{name}\0{one.sha256}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{folder}{slash}.mlw-{key[:24]}.part"


def _digest(file: int) -> hashlib._Hash:
    digest = hashlib.sha256()
    at = 0
    while data := os.pread(file, _CHUNK, at):
        digest.update(data)
        at += len(data)
    return digest
