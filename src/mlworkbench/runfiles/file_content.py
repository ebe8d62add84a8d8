"""Copy and hash file content in constant memory, preserving holes in sparse files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from ..remote.output_scan import hole_end

CHUNK = 1 << 20
_ZEROS = bytes(CHUNK)
_PAGE_SIZE = 4096  # the smallest hole that file systems support
_PAGE = bytes(_PAGE_SIZE)

Count = Callable[[int], None]


def digest(file: int, size: int, count: Count) -> hashlib._Hash:
    """Return the digest of the first ``size`` bytes, or of the whole file if it is shorter."""
    result = hashlib.sha256()
    _walk(file, 0, size, lambda data, at: result.update(data), lambda data, at: result.update(data), count)
    return result


def copy(source: int, target: int, size: int, count: Count) -> str:
    """Copy the first ``size`` bytes of ``source`` to ``target`` and return the digest of the result.

    Content of ``target`` from an earlier attempt is kept and hashed, and the copy resumes after it.
    """
    existing = os.fstat(target).st_size
    result = digest(target, existing, count)

    def write(data: bytes, at: int) -> None:
        result.update(data)
        if data != _ZEROS[: len(data)]:
            write_at(target, data, at)

    end = _walk(source, existing, size, write, lambda data, at: result.update(data), count)
    os.ftruncate(target, max(end, existing))
    return result.hexdigest()


def _walk(
    file: int,
    start: int,
    end: int,
    take: Callable[[bytes, int], None],
    skip: Callable[[bytes, int], None],
    count: Count,
) -> int:
    """Pass bytes from ``start`` to ``end`` to ``take``, and holes to ``skip``. Return the end offset."""
    status = os.fstat(file)
    sparse = status.st_blocks * 512 < status.st_size
    offset = start
    while offset < end:
        data_start, next_hole = _extent(file, offset, end) if sparse else (offset, end)
        while offset < data_start:
            data = _ZEROS[: data_start - offset]
            skip(data, offset)
            offset += len(data)
            count(len(data))
        while offset < next_hole:
            data = os.pread(file, min(CHUNK, next_hole - offset), offset)
            if not data:
                return offset
            take(data, offset)
            offset += len(data)
            count(len(data))
    return offset


def _extent(file: int, at: int, end: int) -> tuple[int, int]:
    """Return the start of the next data section and the start of the following hole."""
    begin = hole_end(file, at, end)
    if begin >= end:
        return end, end
    try:
        return begin, min(os.lseek(file, begin, os.SEEK_HOLE), end)
    except (OSError, AttributeError):
        return begin, end  # the file system lacks SEEK_HOLE


def write_sparse(target: int, data: bytes, at: int) -> None:
    """Write data without pages of zeros. The caller sets the file size: the last page may be skipped."""
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
