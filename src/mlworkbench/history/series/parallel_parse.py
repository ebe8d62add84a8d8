"""A long stretch of a metric file, parsed by as many processes as there are cores."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise

from ..parallel import Worker, worker_count
from ..reading import LINE
from .lines import Key, Lines, Others
from .points import Points
from .sources import read_lines
from .tables import Place

_SHARE = 4 * 1024 * 1024  # bytes; less is parsed before another process has begun
_LOOK = 64 * 1024


def read_together(path: bytes, place: Place, end: int, known: set[Key]) -> tuple[Place, Lines]:
    """As ``read_lines``, and what was found."""
    cuts = _cuts(path, place.offset, end, min(worker_count(), (end - place.offset) // _SHARE))
    workers = [
        Worker([partial(_parse, path, place._replace(offset=start, skipping=False), stop, known)])
        for start, stop in pairwise([*cuts, end])
    ]
    try:
        lines = Lines(known)
        reached = read_lines(path, place, cuts[0] if cuts else end, lines)
        for start, worker in zip(cuts, workers, strict=True):
            if reached.offset != start:
                break  # the disk could not be read up to there
            reached, points, others = worker.next()
            lines.absorb(points, others)
    finally:
        for worker in workers:
            worker.close()
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


def _parse(path: bytes, place: Place, end: int, known: set[Key]) -> tuple[Place, dict[Key, Points], Others]:
    lines = Lines(known)
    reached = read_lines(path, place, end, lines)
    return reached, lines.points, lines.others
