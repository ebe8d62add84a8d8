"""Run outputs: listings, availability on this machine, and safe previews."""

from __future__ import annotations

import csv
import io
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from ... import fetch_outputs
from ...errors import HistoryError, UnknownName
from ...history.store import History
from ...model import Run
from ...paths import RunFolder
from ...remote.shared.untrusted_json import parse_json
from ...runfiles.output_file import open_output, read_at
from ...runfiles.output_manifest import Output, outputs_of
from ...sanitize import plain

MAX_TEXT = 256 * 1024  # maximum bytes of a text preview
_MAX_ENTRIES = 2000  # maximum number of entries per folder
_MAX_OUTPUTS = 200_000  # maximum number of outputs per run
_MAX_CACHED = 8  # maximum runs whose output lists are cached
_MAX_IMAGES = 500
_MAX_DEPTH = 40  # maximum nesting depth of JSON to indent
_MAX_ROWS, _MAX_COLUMNS, _MAX_CELL = 200, 50, 200
_MAGIC_NUMBERS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg")
_SVG_PROLOGS = (
    (b"<?xml", b"?>"),
    (b"<!--", b"-->"),
    (b"<!DOCTYPE", b">"),
)  # delimiters of markup that may precede <svg>
_HEAD = 4096  # bytes used to detect the file type
_ONLY_DOWNLOAD = (".html", ".htm", ".xhtml", ".xml", ".pdf", ".ipynb", ".js", ".mjs")


Stamp = tuple[str, int, int, int]


@dataclass(frozen=True)
class Entry:
    """An output file, or a folder with its file count and total size."""

    name: str
    path: str
    kind: Annotated[str, Field(description="file, folder, link, …")]
    size: int
    count: int = 1
    here: Annotated[bool, Field(description="Available on this machine")] = True
    to: Annotated[str, Field(description="Target of a symbolic link")] = ""
    logged: Annotated[str, Field(description="Kind under which the script logged it: image, table, …")] = ""


@dataclass(frozen=True)
class Listing:
    """Contents of an output folder."""

    folder: str
    entries: list[Entry]
    count: int  # files in all subfolders
    size: int
    home: Annotated[bool, Field(description="All outputs of the run are available on this machine")]
    more: bool  # not all entries are listed


@dataclass(frozen=True)
class Preview:
    """Preview of an output."""

    path: str
    size: int
    kind: str  # "text", "table", "json", "image", or "none" (no preview; ``text`` contains the reason)
    text: str = ""
    titles: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    cut: bool = False


@dataclass(frozen=True)
class Image:
    """Image among the outputs."""

    path: str
    size: int
    here: bool
    title: str = ""  # as logged by the script
    step: int | None = None


def listing(history: History, run_id: str, folder: str = "", text: str = "") -> Listing:
    """List a folder or, with ``text``, all files below it whose path contains ``text``."""
    run = history.get(run_id)
    run_folder = history.paths.root.run(run.spec.folder)
    is_complete = is_available(run, run_folder)
    prefix = "".join(f"{name}/" for name in folder.split("/") if name not in ("", "."))
    pattern = text.lower()
    files: dict[str, Output] = {}
    folders: dict[str, tuple[int, int]] = {}  # number of files, total size
    count = size = visited = 0
    for output in _outputs(run_folder):
        visited += 1
        if not output.path.startswith(prefix):
            continue
        count, size = count + 1, size + output.size
        rest = output.path[len(prefix) :]
        name, slash, _ = rest.partition("/")
        if pattern:
            if pattern in rest.lower():
                files[rest] = output
        elif slash:
            before = folders.get(name, (0, 0))
            folders[name] = before[0] + 1, before[1] + output.size
        elif name:
            files[name] = output
    if prefix and not count:
        raise UnknownName("folder", folder, [])
    entries = [Entry(name, prefix + name, "folder", size, count) for name, (count, size) in folders.items()]
    entries = sorted(entries, key=lambda entry: entry.name.lower())[:_MAX_ENTRIES]
    names = sorted((name for name in files if name not in folders), key=str.lower)
    entries += [
        _entry(run, run_folder, is_complete, name, files[name]) for name in names[: _MAX_ENTRIES - len(entries)]
    ]
    more = len(folders) + len(names) > len(entries) or visited == _MAX_OUTPUTS
    return Listing(prefix.rstrip("/"), entries, count, size, is_complete, more)


def _entry(run: Run, run_folder: RunFolder, is_complete: bool, name: str, output: Output) -> Entry:
    is_local = is_complete or not output.is_file or _exists(run_folder, output.path)
    return Entry(
        name,
        output.path,
        "file" if output.is_file else output.kind,
        output.size,
        1,
        is_local,
        output.to,
        _logged(run, output.path),
    )


def list_images(history: History, run_id: str) -> list[Image]:
    """Return all images by path. Images that the script logged have a title and a step."""
    run = history.get(run_id)
    run_folder = history.paths.root.run(run.spec.folder)
    is_complete = is_available(run, run_folder)
    images = []
    for output in _outputs(run_folder):
        if output.is_file and output.path.lower().endswith(_IMAGE_SUFFIXES):
            record = run.files.get(output.path)
            record = record if isinstance(record, dict) else {}
            step = record.get("step")
            title = plain(str(record.get("name") or ""), 200)
            is_local = is_complete or _exists(run_folder, output.path)
            images.append(Image(output.path, output.size, is_local, title, step if isinstance(step, int) else None))
        if len(images) >= _MAX_IMAGES:
            break
    return sorted(images, key=lambda image: image.path)


def open_for_download(history: History, run_id: str, path: str) -> tuple[int, str, bool]:
    """Open an output. Return its handle, its media type, and whether the run may still change it."""
    run = history.get(run_id)
    handle = open_output(history.paths.root.run(run.spec.folder), path)
    return handle, image_type(read_at(handle, _HEAD, 0)) or "application/octet-stream", not run.status.final


def image_type(head: bytes) -> str | None:
    """Detect the media type of an image from its first bytes, not from its name.

    SVG is harmless in an ``img`` element, because its scripts do not run there.
    """
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if _is_svg(head):
        return "image/svg+xml"
    return next((kind for sign, kind in _MAGIC_NUMBERS if head.startswith(sign)), None)


def _is_svg(head: bytes) -> bool:
    """Detect SVG in one pass: a few comments can make a regular expression backtrack for years."""
    position = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    while True:
        while head[position : position + 1].isspace():
            position += 1
        end = next((end for begin, end in _SVG_PROLOGS if head.startswith(begin, position)), None)
        if end is None:
            return head.startswith(b"<svg", position) and (
                head[position + 4 : position + 5].isspace() or head[position + 4 : position + 5] == b">"
            )
        end_position = head.find(end, position)
        if end_position < 0:
            return False
        position = end_position + len(end)


def preview(history: History, run_id: str, path: str) -> Preview:
    """Return a preview. Files that a browser would execute are shown as plain text."""
    run = history.get(run_id)
    with open(open_output(history.paths.root.run(run.spec.folder), path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(MAX_TEXT + 1)
    if image_type(data[:_HEAD]):
        return Preview(path, size, "image")
    if path.lower().endswith(_ONLY_DOWNLOAD):
        return _as_text(path, size, data)
    if b"\0" in data:
        return Preview(path, size, "none", "This file is not text. Download it to view it.")
    if path.lower().endswith((".csv", ".tsv")):
        return _as_table(path, size, data)
    if path.lower().endswith(".json") and size <= MAX_TEXT:
        return _as_json(path, size, data)
    return _as_text(path, size, data)


def _as_text(path: str, size: int, data: bytes) -> Preview:
    if b"\0" in data:
        return Preview(path, size, "none", "This file is not text. Download it to view it.")
    return Preview(path, size, "text", data[:MAX_TEXT].decode("utf-8", "replace"), cut=size > MAX_TEXT)


def _as_json(path: str, size: int, data: bytes) -> Preview:
    try:
        value = parse_json(data)
        if _is_too_deep(value):
            return _as_text(path, size, data)
        text = _format_json(value)
    except (ValueError, RecursionError):
        return _as_text(path, size, data)
    return Preview(path, size, "json", text[:MAX_TEXT], cut=len(text) > MAX_TEXT)


def _is_too_deep(value: Any) -> bool:
    """Return whether JSON is nested so deeply that indentation would greatly increase its size."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list)))
        level = [item for each in inner for item in each]
        if not level:
            return False
    return True


def _format_json(value: Any) -> str:
    """Format JSON with indentation, up to slightly more than the preview shows."""
    parts, length = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        parts.append(part)
        length += len(part)
        if length > MAX_TEXT:
            break
    return "".join(parts).encode("utf-8", "replace").decode("utf-8")  # replaces lone surrogates


def _as_table(path: str, size: int, data: bytes) -> Preview:
    text = data[:MAX_TEXT].decode("utf-8", "replace")
    rows = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter="\t" if path.lower().endswith(".tsv") else ","):
            rows.append(tuple(plain(cell, _MAX_CELL) for cell in row[:_MAX_COLUMNS]))
            if len(rows) > _MAX_ROWS:
                break
    except csv.Error:
        return _as_text(path, size, data)
    if not rows:
        return _as_text(path, size, data)
    return Preview(
        path, size, "table", "", rows[0], tuple(rows[1 : _MAX_ROWS + 1]), len(rows) > _MAX_ROWS or size > MAX_TEXT
    )


def _outputs(run_folder: RunFolder) -> Sequence[Output]:
    """Return the outputs of a run, up to the maximum number.

    The outputs of a finished run are read only once.
    """
    try:
        status = os.stat(run_folder.manifest)
        stamp = (run_folder.manifest, status.st_mtime_ns, status.st_size, status.st_ino)
    except OSError:
        stamp = None  # the active run may write more outputs at any time
    cached = _CACHE.get(stamp) if stamp else None
    if cached is not None:
        return cached
    each, _ = outputs_of(run_folder)
    try:
        outputs = [replace(output, sha256=None) for output in islice(each(), _MAX_OUTPUTS)]
    except FileNotFoundError:
        return []  # the run has not started
    except OSError as error:
        raise HistoryError(f"cannot read the outputs: {error.strerror}") from error
    if stamp:
        _CACHE.put(stamp, outputs)
    return outputs


class _OutputCache:
    """Cache of recently used output lists, with a limit on the total number of outputs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: OrderedDict[Stamp, list[Output]] = OrderedDict()

    def get(self, stamp: Stamp) -> list[Output] | None:
        with self._lock:
            if stamp in self._lists:
                self._lists.move_to_end(stamp)
            return self._lists.get(stamp)

    def put(self, stamp: Stamp, outputs: list[Output]) -> None:
        with self._lock:
            for old in [key for key in self._lists if key[0] == stamp[0]]:
                del self._lists[old]
            self._lists[stamp] = outputs
            while len(self._lists) > _MAX_CACHED or (
                len(self._lists) > 1 and sum(map(len, self._lists.values())) > _MAX_OUTPUTS
            ):
                self._lists.popitem(last=False)


_CACHE = _OutputCache()


def has_all_outputs(history: History, run_id: str) -> bool:
    """Return whether all outputs of the run are on this machine."""
    run = history.get(run_id)
    return is_available(run, history.paths.root.run(run.spec.folder))


def is_available(run: Run, run_folder: RunFolder) -> bool:
    return not run.spec.compute.address or fetch_outputs.are_outputs_downloaded(run_folder)


def _exists(run_folder: RunFolder, path: str) -> bool:
    return os.path.lexists(os.path.join(run_folder.outputs, path))


def _logged(run: Run, path: str) -> str:
    record = run.files.get(path)
    kind = record.get("as") if isinstance(record, dict) else None
    return plain(str(kind), 40) if kind else ""
