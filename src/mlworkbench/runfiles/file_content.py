"""The bytes of one file into another, checked on the way, in little memory. Holes stay holes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from ..remote.outputs import hole_end

CHUNK = 1 << 20
_ZEROS = bytes(CHUNK)
_PAGE_SIZE = 4096  # file systems have no smaller holes
_PAGE = bytes(_PAGE_SIZE)

Count = Callable[[int], None]


def digest(file: int, size: int, count: Count) -> hashlib._Hash:
    """Of the first ``size`` bytes; of fewer if there are no more."""
    found = hashlib.sha256()
    _walk(file, 0, size, lambda data, at: found.update(data), lambda data, at: found.update(data), count)
    return found


def copy(source: int, target: int, size: int, count: Count) -> str:
    """Bring ``target`` to the first ``size`` bytes of ``source``; the digest of what it then holds.

    What an earlier attempt left in it is read, not believed, and the copying goes on behind it.
    """
    have = os.fstat(target).st_size
    found = digest(target, have, count)

    def write(data: bytes, at: int) -> None:
        found.update(data)
        if data != _ZEROS[: len(data)]:
            write_at(target, data, at)

    end = _walk(source, have, size, write, lambda data, at: found.update(data), count)
    os.ftruncate(target, max(end, have))
    return found.hexdigest()


def _walk(
    file: int,
    start: int,
    end: int,
    take: Callable[[bytes, int], None],
    skip: Callable[[bytes, int], None],
    count: Count,
) -> int:
    """Hand over the bytes from ``start`` to ``end``: what was read to ``take``, zeros of a hole to ``skip``."""
    facts = os.fstat(file)
    sparse = facts.st_blocks * 512 < facts.st_size
    at = start
    while at < end:
        data_at, next_hole = _extent(file, at, end) if sparse else (at, end)
        while at < data_at:
            data = _ZEROS[: data_at - at]
            skip(data, at)
            at += len(data)
            count(len(data))
        while at < next_hole:
            data = os.pread(file, min(CHUNK, next_hole - at), at)
            if not data:
                return at
            take(data, at)
            at += len(data)
            count(len(data))
    return at


def _extent(file: int, at: int, end: int) -> tuple[int, int]:
    """Where the next data begins, and where the hole after it does."""
    begin = hole_end(file, at, end)
    if begin >= end:
        return end, end
    try:
        return begin, min(os.lseek(file, begin, os.SEEK_HOLE), end)
    except (OSError, AttributeError):
        return begin, end  # a disk that cannot tell


def write_sparse(target: int, data: bytes, at: int) -> None:
    """Write without the pages of zeros. The caller sets the size, in case the last page is one."""
    if _PAGE not in data:
        write_at(target, data, at)
        return
    begin = position = 0
    while position < len(data):
        end = min(len(data), position + _PAGE_SIZE - (at + position) % _PAGE_SIZE)
        if data[position:end] == _PAGE[: end - position]:
            write_at(target, data[begin:position], at + begin)
            begin = end
        position = end
    write_at(target, data[begin:], at + begin)


def write_at(target: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(target, view, at)
        view, at = view[done:], at + done
