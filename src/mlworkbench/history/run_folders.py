"""Run folders as the index reads them when it is made anew. One bad folder must not cost the others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..errors import HistoryError
from ..model import Run, RunSpec
from ..remote.shared import metric_files
from ..remote.shared.files import read_json, write_whole
from ..remote.shared.layout import Root, RunFolder, is_outside
from ..remote.shared.tree import NOFOLLOW
from ..typed import is_sound
from .annotations import noted_of, read_all
from .family import children_of
from .intake import take_in
from .outside import outside_names, outside_run, outside_spec
from .reading import LINE
from .rows import TOLD, Reading

Family = list[tuple[Run, Reading]]

CHUNK = 4 * 1024 * 1024
_LATEST = 1e11  # seconds since 1970, in the year 5138
_FLAGS = os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def make_folder(root: Root, spec: RunSpec) -> None:
    """The run's folder with its spec; there already if an earlier attempt got that far."""
    folder = root.run(spec.id)
    try:
        os.makedirs(folder.path, mode=0o700, exist_ok=True)
        if read_json(folder.spec) is None:
            write_whole(folder.spec, spec.to_json())
    except OSError as error:
        raise HistoryError(f"cannot write {folder.path}: {error.strerror}") from error


def run_names(root: Root) -> list[str]:
    """The folders among the runs, in a fixed order. Whether they hold runs is seen when they are read."""
    return sorted((*os.listdir(root.runs), *outside_names(root)))


def read_family(root: Root, name: str, before: tuple[Run, Reading] | None = None) -> Family:
    """The run that its folder tells of, and how far it was read for that; then the runs inside it.

    Nothing if the folder has no sound spec. ``before``: what an earlier look found, from where this one goes on.
    """
    folder = root.run(name)
    spec = outside_spec(folder, name) if is_outside(name) else _spec(folder)
    if spec is None or spec.id != name:
        return []
    run = outside_run(folder, spec) if is_outside(name) else Run(spec)
    reading = Reading()
    if before is not None:
        run, reading = replace(run, **{told: getattr(before[0], told) for told in TOLD}), before[1]
    for parts in read_parts(folder, reading.offsets):
        run, reading = take_in(run, reading, parts)
    noted = read_all(root, name)
    family = [(run, reading), *((child, Reading()) for child in children_of(run))]
    return [(replace(one, noted=noted_of(noted, one.id)), read) for one, read in family] if noted else family


def _spec(folder: RunFolder) -> RunSpec | None:
    data = read_json(folder.spec)
    try:
        spec = RunSpec.from_json(data) if data else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return spec if spec is not None and is_sound(spec) and 0 <= spec.created < _LATEST else None


def read_parts(folder: RunFolder, since: Mapping[str, int]) -> Iterator[dict[str, bytes]]:
    """The bytes of the run's metrics and events in pieces that end at a line; the events come last.

    Small files come together: most runs are one piece, and 100,000 of them are taken in quicker.
    """
    parts: dict[str, bytes] = {}
    size, left = 0, metric_files.bytes_left(since)
    for name in [*_metrics(folder, since), "events.jsonl"]:
        for piece in _pieces(os.path.join(folder.path, name), since.get(name, 0)):
            if name != "events.jsonl":
                if left <= 0:
                    break
                left -= len(piece)
            if name in parts or size + len(piece) > CHUNK:
                yield parts
                parts, size = {}, 0
            parts[name] = piece
            size += len(piece)
    yield parts


def _metrics(folder: RunFolder, since: Mapping[str, int]) -> list[str]:
    """The metrics files that were read before, and as many others as a run may have."""
    try:
        there = [f"metrics/{name}" for name in os.listdir(folder.metrics) if metric_files.is_name(name)]
    except OSError:
        return []
    new = sorted(name for name in there if name not in since)[: max(0, metric_files.files_left(since))]
    return sorted([*new, *(name for name in there if name in since)])


def _pieces(path: str, start: int) -> Iterator[bytes]:
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return
        os.lseek(descriptor, start, os.SEEK_SET)
        rest, skipped = b"", 0
        # Room for what is there: 4 MB each time would cost more than the reading.
        while chunk := os.read(descriptor, min(CHUNK, facts.st_size + 1)):
            rest += chunk
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
                rest, skipped = rest[end:], 0
            elif len(rest) >= LINE:  # none of ours: it is counted, and not kept in memory
                yield rest
                rest, skipped = b"", skipped + len(rest)
                if skipped >= metric_files.LONGEST_SKIPPED:
                    return
    except OSError:
        return  # a disk that cannot be read here: the other runs go on
    finally:
        os.close(descriptor)
