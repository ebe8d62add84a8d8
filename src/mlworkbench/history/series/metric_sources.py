"""Read the metrics files of a run, starting where the last read stopped."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

from ...remote.shared import metric_limits
from ...remote.shared.folder_tree import NOFOLLOW
from ..journal_parsing import MAX_LINE
from .metric_lines import Lines
from .series_schema import FilePosition

_FLAGS = os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_PIECE = 256 * 1024  # bytes to read and parse at once; fits in the CPU caches


def list_file_sizes(folder: str, known_files: Collection[bytes] = ()) -> dict[bytes, int]:
    """Return the metrics files with their sizes, sorted. Skip other entries and files beyond the limit.

    ``known_files`` take precedence over new ones: a file must not seem deleted because a script creates
    many others.
    """
    files = []
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.append((entry.name, entry.stat(follow_symlinks=False).st_size))
    except OSError:
        pass
    files.sort(key=lambda file: (file[0] not in known_files, file[0]))
    return dict(sorted(files[: metric_limits.MAX_FILES]))


def read_lines(path: bytes, position: FilePosition, end: int, lines: Lines) -> FilePosition:
    """Parse complete lines up to ``end`` and return the new position. Stop early on a read error."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return position
    offset, skipping, rest = position.offset, position.skipping, b""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.lseek(descriptor, offset, os.SEEK_SET)
            while piece := os.read(descriptor, min(_PIECE, end - offset - len(rest))):
                rest += piece
                used = rest.rfind(b"\n") + 1
                if not used and (skipping or len(rest) > MAX_LINE):
                    skipping, used = True, len(rest)  # exceeds the maximum line length
                elif used:
                    complete = rest[rest.index(b"\n") + 1 : used] if skipping else rest[:used]
                    skipping = False
                    lines.parse(complete.decode("utf-8", "surrogateescape"))
                offset, rest = offset + used, rest[used:]
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return position._replace(offset=offset, skipping=skipping)
