"""Read the file store of MLflow (``mlruns/``): a folder per run with one small file per parameter, tag, and metric.

The files are not trusted: links are not followed, and sizes and counts are bounded.
"""

from __future__ import annotations

import os
import re
import stat

from ..run_reader import open_regular_file, read_descriptor
from ..shared.folder_tree import FolderHandles, join
from .mlflow_run import MAX_ENTRIES, StoredRun, UnreadableStore, as_milliseconds
from .script_runs import MAX_NAME, MAX_VALUE

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

    from .mlflow_run import Point

METADATA = "meta.yaml"
DATA_FOLDERS = ("metrics", "params", "tags")
_MAX_METADATA = 64 * 1024  # bytes
_MAX_LINE = 1000  # characters of a line of a metric
_MAX_DEPTH = 20  # of the folders that a name with slashes creates
_FIELD = re.compile(r"^([a-z_]+): ('(?:[^']|'')*'|\"[^\"\n]*\"|[^\s'\"][^\n]*)$", re.MULTILINE)
_STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}


class FolderRun(StoredRun):
    """A run of a file store. ``folder`` is relative to the working copy."""

    def __init__(self, handles: FolderHandles, folder: str, fields: Dict[str, str]) -> None:
        tags = dict(_read_values(handles, folder + "/tags"))
        name = tags.get("mlflow.runName") or fields.get("run_name")
        fields = dict(fields, name=name or "", status=_STATUS[fields["status"]])
        super().__init__(fields, dict(_read_values(handles, folder + "/params")), tags)
        self.folder = folder

    def points(self, handles: FolderHandles) -> Iterator[Point]:
        for name, path in list_files(handles, self.folder + "/metrics"):
            descriptor = open_regular_file(handles, path)
            if descriptor is None:
                continue
            with os.fdopen(descriptor, "rb") as file:
                for line in iter(lambda: file.readline(_MAX_LINE), b""):
                    point = _parse_point(line)
                    if point is not None:
                        yield (name,) + point


def read_run(handles: FolderHandles, path: str) -> Optional[FolderRun]:
    """Return the run that a ``meta.yaml`` describes. Return None for any other file of this name.

    Raise UnreadableStore for a run in an unknown format.
    """
    descriptor = open_regular_file(handles, path)
    if descriptor is None:
        return None
    try:
        text = read_descriptor(descriptor, 0, _MAX_METADATA).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
    fields = {name: _unquote(value) for name, value in _FIELD.findall(text)}
    fields.setdefault("run_id", fields.get("run_uuid", ""))  # the first versions
    if not fields["run_id"] or "start_time" not in fields:
        return None  # an experiment, or a file of another program
    folder = path.rpartition("/")[0]
    try:
        return FolderRun(handles, folder, fields)
    except (KeyError, ValueError):
        raise UnreadableStore("its format is unknown") from None


def _unquote(value: str) -> str:
    if value[0] == "'":
        return value[1:-1].replace("''", "'")
    return value[1:-1] if value[0] == '"' else value


def _read_values(handles: FolderHandles, folder: str) -> Iterator[Tuple[str, str]]:
    """Yield the name and content of each file."""
    for name, path in list_files(handles, folder):
        descriptor = open_regular_file(handles, path)
        if descriptor is not None:
            try:
                data = read_descriptor(descriptor, 0, 4 * MAX_VALUE)
            finally:
                os.close(descriptor)
            yield name, data.decode("utf-8", "replace")[:MAX_VALUE]


def list_files(handles: FolderHandles, folder: str) -> Iterator[Tuple[str, str]]:
    """Yield the name below ``folder`` and the path of each file."""
    pending, entries = [""], 0
    while pending:
        prefix = pending.pop()
        try:
            files, folders = _scan(handles.open(join(folder, prefix) if prefix else folder))
        except OSError:
            continue
        if prefix.count("/") < _MAX_DEPTH:
            pending += [join(prefix, name) for name in folders]
        for name in files:
            entries += 1
            if entries > MAX_ENTRIES:
                return
            name = join(prefix, name)
            if len(name) <= MAX_NAME:
                yield name, join(folder, name)


def _scan(handle: int) -> Tuple[List[str], List[str]]:
    files: List[str] = []
    folders: List[str] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            if len(files) + len(folders) > MAX_ENTRIES:
                break
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                folders.append(entry.name)
            elif stat.S_ISREG(mode):
                files.append(entry.name)
    return sorted(files), sorted(folders)


def _parse_point(line: bytes) -> Optional[Tuple[float, int, int]]:
    """Return value, time in milliseconds, and step. The first versions had no step."""
    try:
        when, value, *rest = line.decode("ascii").split()
        return float(value), as_milliseconds(when), int(rest[0]) if rest else 0
    except (ValueError, UnicodeDecodeError):
        return None
