"""Parse a large section of a metrics file with one process per core."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise

from ..journal_parsing import MAX_LINE
from ..worker_processes import Worker, worker_count
from .metric_lines import Key, Lines, OtherValues
from .metric_sources import read_lines
from .points import Points
from .series_schema import FilePosition

_MIN_SHARE = 4 * 1024 * 1024  # bytes; parsing less takes no longer than starting a worker
_SEARCH_BYTES = 64 * 1024


def read_in_parallel(
    path: bytes, position: FilePosition, end: int, known: set[Key], owner: str = ""
) -> tuple[FilePosition, Lines]:
    """Parse like ``read_lines``, but in parallel. Return the new position and the parsed lines."""
    cuts = _find_cuts(path, position.offset, end, min(worker_count(), (end - position.offset) // _MIN_SHARE))
    workers = [
        Worker([partial(_parse, path, position._replace(offset=start, skipping=False), stop, known, owner)])
        for start, stop in pairwise([*cuts, end])
    ]
    try:
        lines = Lines(known, owner)
        reached = read_lines(path, position, cuts[0] if cuts else end, lines)
        for start, worker in zip(cuts, workers, strict=True):
            if reached.offset != start:
                break  # a read error occurred before this position
            reached, points, others = worker.next()
            lines.merge(points, others)
    finally:
        for worker in workers:
            worker.close()
    return reached, lines


def _find_cuts(path: bytes, start: int, end: int, parts: int) -> list[int]:
    """Return evenly spaced offsets at which lines begin."""
    cuts: list[int] = []
    if parts < 2:
        return cuts
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        for part in range(1, parts):
            at = start + (end - start) * part // parts
            while at < min(end, start + (end - start) * part // parts + MAX_LINE):
                file.seek(at)
                newline = file.read(_SEARCH_BYTES).find(b"\n")
                if newline >= 0:
                    at += newline + 1
                    if max(cuts, default=start) < at < end:
                        cuts.append(at)
                    break
                at += _SEARCH_BYTES
    return cuts


def _parse(
    path: bytes, position: FilePosition, end: int, known: set[Key], owner: str
) -> tuple[FilePosition, dict[Key, Points], OtherValues]:
    lines = Lines(known, owner)
    reached = read_lines(path, position, end, lines)
    return reached, lines.points, lines.others
