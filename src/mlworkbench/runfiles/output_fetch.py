"""Fetch the outputs of a remote run into its local folder. Each file appears atomically.

Fetching can be resumed. Received data is untrusted until its digest is verified. Paths are resolved
with file handles. A file gets its final name only if its content matches the list of outputs, and
never takes more bytes than listed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import HistoryError, HostError
from ..remote.shared.folder_tree import NEW, NOFOLLOW, points_inside
from .disk_limit import require_room
from .file_content import write_sparse
from .output_manifest import LINK, Output
from .safe_paths import SafeFolders, path_problem
from .verified_copy import Outcome

_BATCH_FILES, _BATCH_BYTES = 2000, 256 * 1024 * 1024
_CHUNK = 1 << 20

# Requests files by (path, offset, listed size); yields (index of the file, next bytes) in order.
RequestFiles = Callable[[Sequence[tuple[str, int, int]]], Iterator[tuple[int, bytes]]]


@dataclass(frozen=True)
class _PendingFile:
    output: Output
    part: str
    offset: int

    @property
    def remaining(self) -> int:
        return self.output.size - self.offset


class OutputFetcher:
    """Fetcher that writes outputs to a local folder that no script of the run can access."""

    def __init__(self, folder: str, request: RequestFiles, report: Callable[[int], None]) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.outcome = Outcome()
        self._folder = folder
        self._target = SafeFolders(folder)
        self._request = request
        self._report = report
        self._hashes: dict[str, hashlib._Hash] = {}  # by part path, for files received from the beginning

    def fetch(self, outputs: Iterable[Output]) -> Outcome:
        """Fetch missing outputs. Problems with individual files are recorded in the outcome."""
        links: list[Output] = []
        batch: list[_PendingFile] = []
        size = 0
        try:
            for output in outputs:
                if output.kind == LINK:
                    links.append(output)
                    continue
                pending = self._prepare(output)
                if pending is None:
                    continue
                batch.append(pending)
                size += pending.remaining
                if len(batch) >= _BATCH_FILES or size >= _BATCH_BYTES:
                    self._fetch_batch(batch)
                    batch, size = [], 0
            self._fetch_batch(batch)
            self._make_links(links)
        except OSError as error:
            raise HistoryError(
                f"cannot write outputs to {self._folder}: {error.strerror}",
                "free disk space and run the command again: it continues where it stopped",
            ) from error
        finally:
            self._target.close()
        return self.outcome

    def _prepare(self, output: Output) -> _PendingFile | None:
        problem = path_problem(output.path)
        if not output.is_file:
            self.outcome.skipped.append((output.path, output.described))
        elif problem:
            self.outcome.failed.append((output.path, problem))
        else:
            existing = self._target.lstat(output.path)
            if existing is not None and existing.st_size == output.size:
                self.outcome.same += 1
                self._count(output.size)
                return None
            part = _part_path(output)
            partial = self._target.lstat(part)
            # Without a digest, an outdated part file could not be detected.
            is_usable = partial is not None and bool(output.sha256) and partial.st_size <= output.size
            return _PendingFile(output, part, partial.st_size if partial and is_usable else 0)
        return None

    def _fetch_batch(self, batch: list[_PendingFile]) -> None:
        """Fetch many files with one request. Files with wrong content are requested again in full."""
        self._receive(batch)
        retries = [_PendingFile(pending.output, pending.part, 0) for pending in batch if not self._finish(pending)]
        self._receive(retries)
        for pending in retries:
            if not self._finish(pending):
                self.outcome.failed.append(
                    (pending.output.path, "content differs from what was recorded when the run ended")
                )

    def _receive(self, batch: list[_PendingFile]) -> None:
        """Write received bytes to part files, hashing content that is received from the start."""
        if not batch:
            return
        require_room(self._folder, sum(pending.remaining for pending in batch), "the next part of the outputs")
        current, file, remaining, position = -1, -1, 0, 0
        try:
            for index, data in self._request(
                [(pending.output.path, pending.offset, pending.output.size) for pending in batch]
            ):
                if not max(current, 0) <= index < len(batch):
                    raise HostError("the target sent an unrequested file")
                if index != current:
                    _close(file, position)
                    current, file, remaining, position = index, -1, batch[index].remaining, batch[index].offset
                    file = self._open(batch[index])
                remaining -= len(data)
                if remaining < 0:
                    raise _excess_error(batch[index].output)
                write_sparse(file, data, position)
                position += len(data)
                if not batch[index].offset:
                    self._hashes.setdefault(batch[index].part, hashlib.sha256()).update(data)
                self._count(len(data))
        finally:
            _close(file, position)

    def _open(self, pending: _PendingFile) -> int:
        folder, _, name = pending.part.rpartition("/")
        handle = self._target.make(folder, 0o700)
        file = os.open(name, (NEW & ~os.O_EXCL) | NOFOLLOW, 0o644, dir_fd=handle)
        self._hashes.pop(pending.part, None)
        os.ftruncate(file, pending.offset)
        return file

    def _finish(self, pending: _PendingFile) -> bool:
        """Rename a part to its final name if its content is correct; otherwise remove it."""
        output = pending.output
        folder, _, name = output.path.rpartition("/")
        handle = self._target.make(folder, 0o700)
        part = pending.part.rpartition("/")[2]
        file = os.open(part, os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o644, dir_fd=handle)
        try:
            size = os.fstat(file).st_size
            computed = self._hashes.pop(pending.part, None)
            is_correct = size == output.size and (
                not output.sha256 or (computed or _digest(file)).hexdigest() == output.sha256
            )
            if is_correct:
                if size >= _CHUNK:  # syncing smaller files is too slow; downloads verify their digests
                    os.fsync(file)
                os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)
                self.outcome.copied += 1
                return True
            os.unlink(part, dir_fd=handle)
        finally:
            os.close(file)
        return False

    def _make_links(self, links: list[Output]) -> None:
        """Create links last, so that nothing is written through them."""
        for output in links:
            if path_problem(output.path) or not points_inside(output.path, output.to):
                self.outcome.skipped.append((output.path, f"link to {output.to}, which is outside the outputs"))
                continue
            folder, _, name = output.path.rpartition("/")
            try:
                os.symlink(output.to, name, dir_fd=self._target.make(folder, 0o700))
                self.outcome.links += 1
            except FileExistsError:
                self.outcome.same += 1

    def _count(self, size: int) -> None:
        self.outcome.size += size
        self._report(self.outcome.size)


def _close(file: int, size: int) -> None:
    """Close a file and set its size, because trailing zeros were not written."""
    if file >= 0:
        try:
            os.ftruncate(file, size)
        finally:
            os.close(file)


def _excess_error(output: Output) -> HostError:
    return HostError(
        f"the target sent more of {output.path[:200]!a} than the {output.size:,} bytes in the list of outputs",
        "the rest was discarded; if you trust the machine, try again with 'mlw history download'",
    )


def _part_path(output: Output) -> str:
    """Return a path next to the file, derived from its content so that a later attempt can resume."""
    folder, slash, name = output.path.rpartition("/")
    key = hashlib.sha256(f"{name}\0{output.sha256}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{folder}{slash}.mlw-{key[:24]}.part"


def _digest(file: int) -> hashlib._Hash:
    digest = hashlib.sha256()
    offset = 0
    while data := os.pread(file, _CHUNK, offset):
        digest.update(data)
        offset += len(data)
    return digest
