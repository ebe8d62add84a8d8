"""The metric files of a run, read from where the last reading stopped."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

from ...remote.shared import metric_files
from ...remote.shared.tree import NOFOLLOW
from ..reading import LINE
from .lines import Lines
from .tables import Place

_FLAGS = os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_PIECE = 256 * 1024  # what is read and parsed at once: small enough for the processor's caches


def sizes(folder: str, known: Collection[bytes] = ()) -> dict[bytes, int]:
    """The files there and their sizes, in a fixed order. What is no file, and what is one too many, is passed over.

    Those that are ``known`` come before new ones: a file must not seem to be gone when a script makes many others.
    """
    found = []
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
    except OSError:
        pass
    found.sort(key=lambda one: (one[0] not in known, one[0]))
    return dict(sorted(found[: metric_files.MOST_FILES]))


def read_lines(path: bytes, place: Place, end: int, lines: Lines) -> Place:
    """Whole lines up to ``end`` at most; how far that was. A disk that cannot be read here gives what it can."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return place
    offset, skipping, rest = place.offset, place.skipping, b""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.lseek(descriptor, offset, os.SEEK_SET)
            while piece := os.read(descriptor, min(_PIECE, end - offset - len(rest))):
                rest += piece
                used = rest.rfind(b"\n") + 1
                if not used and (skipping or len(rest) > LINE):
                    skipping, used = True, len(rest)  # too long to be a line
                elif used:
                    whole = rest[rest.index(b"\n") + 1 : used] if skipping else rest[:used]
                    skipping = False
                    lines.take(whole.decode("utf-8", "surrogateescape"))
                offset, rest = offset + used, rest[used:]
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return place._replace(offset=offset, skipping=skipping)
