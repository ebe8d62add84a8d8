"""Read run folders into the index. An invalid folder must not affect the others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..dataclass_check import has_valid_types
from ..errors import HistoryError
from ..model import Run, RunSpec
from ..remote.shared import metric_limits
from ..remote.shared.atomic_files import read_json, write_atomic
from ..remote.shared.folder_tree import NOFOLLOW
from ..remote.shared.layout import Root, RunFolder, is_untracked
from .annotations import annotations_of, read_annotations
from .ingest import ingest_bytes
from .journal_parsing import MAX_LINE
from .nested_runs import children_of
from .rows import SCRIPT_FIELDS, ReadPosition
from .untracked_runs import untracked_names, untracked_run, untracked_spec

FolderRuns = list[tuple[Run, ReadPosition]]

CHUNK = 4 * 1024 * 1024
_MAX_TIMESTAMP = 1e11  # seconds since 1970; year 5138
_FLAGS = os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def make_folder(root: Root, spec: RunSpec) -> None:
    """Create the run folder with its spec unless an earlier attempt already did."""
    folder = root.run(spec.id)
    try:
        os.makedirs(folder.path, mode=0o700, exist_ok=True)
        if read_json(folder.spec) is None:
            write_atomic(folder.spec, spec.to_json())
    except OSError as error:
        raise HistoryError(f"cannot write {folder.path}: {error.strerror}") from error


def list_run_folders(root: Root) -> list[str]:
    """Return the sorted names of all run folders, including folders that turn out to contain no run."""
    return sorted((*os.listdir(root.runs), *untracked_names(root)))


def read_run_folder(root: Root, name: str, before: tuple[Run, ReadPosition] | None = None) -> FolderRuns:
    """Return the run in a folder with its read position, followed by its nested runs.

    The list is empty if the folder has no valid spec. ``before`` is the result of an earlier call from
    which to continue.
    """
    folder = root.run(name)
    spec = untracked_spec(folder, name) if is_untracked(name) else _read_spec(folder)
    if spec is None or spec.id != name:
        return []
    run = untracked_run(folder, spec) if is_untracked(name) else Run(spec)
    reading = ReadPosition()
    if before is not None:
        run, reading = replace(run, **{field: getattr(before[0], field) for field in SCRIPT_FIELDS}), before[1]
    for parts in read_parts(folder, reading.offsets):
        run, reading = ingest_bytes(run, reading, parts)
    annotations = read_annotations(root, name)
    runs = [(run, reading), *((child, ReadPosition()) for child in children_of(run))]
    return (
        [(replace(item, noted=annotations_of(annotations, item.id)), position) for item, position in runs]
        if annotations
        else runs
    )


def _read_spec(folder: RunFolder) -> RunSpec | None:
    data = read_json(folder.spec)
    try:
        spec = RunSpec.from_json(data) if data else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return spec if spec is not None and has_valid_types(spec) and 0 <= spec.created < _MAX_TIMESTAMP else None


def read_parts(folder: RunFolder, since: Mapping[str, int]) -> Iterator[dict[str, bytes]]:
    """Yield the bytes of metrics and events in parts that end at a line break, with the events last.

    Small files are combined. Most runs are a single part, which speeds up reading 100,000 of them.
    """
    parts: dict[str, bytes] = {}
    size, left = 0, metric_limits.bytes_left(since)
    for name in [*_list_metric_files(folder, since), "events.jsonl"]:
        for piece in _read_pieces(os.path.join(folder.path, name), since.get(name, 0)):
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


def _list_metric_files(folder: RunFolder, since: Mapping[str, int]) -> list[str]:
    """Return the metrics files that were read before, and new ones up to the limit per run."""
    try:
        names = [f"metrics/{name}" for name in os.listdir(folder.metrics) if metric_limits.is_metric_file(name)]
    except OSError:
        return []
    new = sorted(name for name in names if name not in since)[: max(0, metric_limits.files_left(since))]
    return sorted([*new, *(name for name in names if name in since)])


def _read_pieces(path: str, start: int) -> Iterator[bytes]:
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return
        os.lseek(descriptor, start, os.SEEK_SET)
        rest, skipped = b"", 0
        # Size the buffer to the file, because allocating 4 MB each time would take longer than reading.
        while chunk := os.read(descriptor, min(CHUNK, status.st_size + 1)):
            rest += chunk
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
                rest, skipped = rest[end:], 0
            elif len(rest) >= MAX_LINE:  # mlw writes no such lines: count the bytes, but do not store them
                yield rest
                rest, skipped = b"", skipped + len(rest)
                if skipped >= metric_limits.MAX_SKIPPED:
                    return
    except OSError:
        return  # an unreadable disk sector; continue with the other runs
    finally:
        os.close(descriptor)
