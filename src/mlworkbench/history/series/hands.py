"""A long stretch of a metric file, parsed by as many processes as there are cores. They only read."""

from __future__ import annotations

import gc
import os
import pickle
from contextlib import suppress
from itertools import pairwise

from ..gather import free_hands
from ..reading import LINE
from .lines import Key, Lines
from .sources import read_lines
from .tables import Place

_SHARE = 4 * 1024 * 1024  # bytes; less is parsed before another process has begun
_LOOK = 64 * 1024

Found = tuple[Place, Lines]


def read_together(path: bytes, place: Place, end: int, known: set[Key]) -> Found:
    """As ``read_lines``, and what was found."""
    cuts = _cuts(path, place.offset, end, min(free_hands(), (end - place.offset) // _SHARE))
    helpers = [
        _Helper(path, place._replace(offset=start, skipping=False), stop, known)
        for start, stop in pairwise([*cuts, end])
    ]
    try:
        lines = Lines(known)
        reached = read_lines(path, place, cuts[0] if cuts else end, lines)
        for helper in helpers:
            if reached.offset != helper.start:
                break  # the disk could not be read up to there
            reached, more = helper.result(known)
            lines.absorb(more)
    finally:
        for helper in helpers:
            helper.close()
    return reached, lines


def _cuts(path: bytes, start: int, end: int, parts: int) -> list[int]:
    """Places in between where a line begins, about equally far from each other."""
    found: list[int] = []
    if parts < 2:
        return found
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        for part in range(1, parts):
            at = start + (end - start) * part // parts
            while at < min(end, start + (end - start) * part // parts + LINE):
                file.seek(at)
                newline = file.read(_LOOK).find(b"\n")
                if newline >= 0:
                    at += newline + 1
                    if max(found, default=start) < at < end:
                        found.append(at)
                    break
                at += _LOOK
    return found


class _Helper:
    """A process that parses its part. It dies when nobody listens any more: also when we were killed."""

    def __init__(self, path: bytes, place: Place, end: int, known: set[Key]) -> None:
        self.start = place.offset
        self._work = path, place, end
        reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            # Nothing that this process was about to do must be done twice: it never returns from here.
            try:
                os.close(reader)
                gc.freeze()
                with open(writer, "wb") as pipe:
                    data = pickle.dumps(_parse(*self._work, set(known)), pickle.HIGHEST_PROTOCOL)
                    pipe.write(len(data).to_bytes(8, "big") + data)
            finally:
                os._exit(0)
        os.close(writer)
        self._pipe = open(reader, "rb")

    def result(self, known: set[Key]) -> Found:
        """What it found; parsed here if it has died, for whatever reason."""
        with suppress(OSError):
            size = int.from_bytes(self._pipe.read(8), "big")
            data = self._pipe.read(size)
            if size and len(data) == size:
                reached, points, others = pickle.loads(data)
                lines = Lines(known)
                lines.points, lines.others = points, others
                return reached, lines
        lines = Lines(known)
        return read_lines(*self._work, lines), lines

    def close(self) -> None:
        self._pipe.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _parse(path: bytes, place: Place, end: int, known: set[Key]) -> tuple[object, object, object]:
    lines = Lines(known)
    reached = read_lines(path, place, end, lines)
    return reached, lines.points, lines.others
