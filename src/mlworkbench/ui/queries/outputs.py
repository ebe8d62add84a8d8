"""The outputs of a run: what there is, what is on this machine, and a look into one that does no harm."""

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

from ... import fetch
from ...errors import HistoryError, UnknownName
from ...history.store import History
from ...model import Run
from ...paths import RunFolder
from ...remote.shared.untrusted import parse_json
from ...report.plain import plain
from ...runfiles.manifest import Output, outputs_of
from ...runfiles.outputfile import open_output, read_at

TEXT = 256 * 1024  # bytes of a text that is shown
_ENTRIES = 2000  # of one folder
_LOOKED_AT = 200_000  # outputs in all
_LISTED = 8  # runs whose lists of outputs stay in memory
_PICTURES = 500
_DEEPEST = 40  # of a JSON that is set out in lines
_ROWS, _COLUMNS, _CELL = 200, 50, 200
_SIGNS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_PICTURE_ENDS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg")
_BEFORE = ((b"<?xml", b"?>"), (b"<!--", b"-->"), (b"<!DOCTYPE", b">"))  # what a drawing may begin with, and its end
_HEAD = 4096  # bytes that tell what a file is
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
    count: int  # files in all folders below
    size: int
    home: Annotated[bool, Field(description="All outputs of the run are available on this machine")]
    more: bool  # there is more than is listed


@dataclass(frozen=True)
class Preview:
    """A look into one output."""

    path: str
    size: int
    kind: str  # "text", "table", "json", "image", "none" (nothing to be shown: why is in ``text``)
    text: str = ""
    titles: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    cut: bool = False


@dataclass(frozen=True)
class Picture:
    """An image among the outputs."""

    path: str
    size: int
    here: bool
    title: str = ""  # as the script logged it
    step: int | None = None


def listing(history: History, run_id: str, folder: str = "", text: str = "") -> Listing:
    """One folder; with a ``text``, the files anywhere below it that have it in their path."""
    run = history.get(run_id)
    place = history.paths.root.run(run.spec.folder)
    home = is_at_home(run, place)
    above = "".join(f"{name}/" for name in folder.split("/") if name not in ("", "."))
    wanted = text.lower()
    found: dict[str, Output] = {}
    folders: dict[str, tuple[int, int]] = {}  # files and bytes in them
    count = size = seen = 0
    for one in _outputs(place):
        seen += 1
        if not one.path.startswith(above):
            continue
        count, size = count + 1, size + one.size
        rest = one.path[len(above) :]
        name, slash, _ = rest.partition("/")
        if wanted:
            if wanted in rest.lower():
                found[rest] = one
        elif slash:
            before = folders.get(name, (0, 0))
            folders[name] = before[0] + 1, before[1] + one.size
        elif name:
            found[name] = one
    if above and not count:
        raise UnknownName("folder", folder, [])
    entries = [Entry(name, above + name, "folder", one[1], one[0]) for name, one in folders.items()]
    entries = sorted(entries, key=lambda one: one.name.lower())[:_ENTRIES]
    names = sorted((name for name in found if name not in folders), key=str.lower)
    entries += [_entry(run, place, home, name, found[name]) for name in names[: _ENTRIES - len(entries)]]
    more = len(folders) + len(names) > len(entries) or seen == _LOOKED_AT
    return Listing(above.rstrip("/"), entries, count, size, home, more)


def _entry(run: Run, place: RunFolder, home: bool, name: str, one: Output) -> Entry:
    here = home or not one.is_file or _is_here(place, one.path)
    return Entry(name, one.path, "file" if one.is_file else one.kind, one.size, 1, here, one.to, _logged(run, one.path))


def pictures(history: History, run_id: str) -> list[Picture]:
    """All images, by their names; what the script logged as one comes with its title and step."""
    run = history.get(run_id)
    place = history.paths.root.run(run.spec.folder)
    home = is_at_home(run, place)
    found = []
    for one in _outputs(place):
        if one.is_file and one.path.lower().endswith(_PICTURE_ENDS):
            told = run.files.get(one.path)
            told = told if isinstance(told, dict) else {}
            step = told.get("step")
            title = plain(str(told.get("name") or ""), 200)
            here = home or _is_here(place, one.path)
            found.append(Picture(one.path, one.size, here, title, step if isinstance(step, int) else None))
        if len(found) >= _PICTURES:
            break
    return sorted(found, key=lambda one: one.path)


def opened(history: History, run_id: str, path: str) -> tuple[int, str, bool]:
    """A handle for reading, the type that it may be shown as, and whether it is still being written."""
    run = history.get(run_id)
    handle = open_output(history.paths.root.run(run.spec.folder), path)
    return handle, picture_type(read_at(handle, _HEAD, 0)) or "application/octet-stream", not run.status.final


def picture_type(head: bytes) -> str | None:
    """By its first bytes, whatever its name says. A drawing (SVG) is harmless in an img: nothing in it runs there."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if _is_drawing(head):
        return "image/svg+xml"
    return next((kind for sign, kind in _SIGNS if head.startswith(sign)), None)


def _is_drawing(head: bytes) -> bool:
    """Looked at once from left to right: a pattern for it could be kept busy for years by a few comments."""
    at = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    while True:
        while head[at : at + 1].isspace():
            at += 1
        end = next((end for begin, end in _BEFORE if head.startswith(begin, at)), None)
        if end is None:
            return head.startswith(b"<svg", at) and (head[at + 4 : at + 5].isspace() or head[at + 4 : at + 5] == b">")
        found = head.find(end, at)
        if found < 0:
            return False
        at = found + len(end)


def preview(history: History, run_id: str, path: str) -> Preview:
    """Text of any kind as text; what a browser would run is only said to be there."""
    run = history.get(run_id)
    with open(open_output(history.paths.root.run(run.spec.folder), path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(TEXT + 1)
    if picture_type(data[:_HEAD]):
        return Preview(path, size, "image")
    if path.lower().endswith(_ONLY_DOWNLOAD):
        return _as_text(path, size, data)
    if b"\0" in data:
        return Preview(path, size, "none", "This file is not text. Download it to view it.")
    if path.lower().endswith((".csv", ".tsv")):
        return _as_table(path, size, data)
    if path.lower().endswith(".json") and size <= TEXT:
        return _as_json(path, size, data)
    return _as_text(path, size, data)


def _as_text(path: str, size: int, data: bytes) -> Preview:
    if b"\0" in data:
        return Preview(path, size, "none", "This file is not text. Download it to view it.")
    return Preview(path, size, "text", data[:TEXT].decode("utf-8", "replace"), cut=size > TEXT)


def _as_json(path: str, size: int, data: bytes) -> Preview:
    try:
        told = parse_json(data)
        if _is_deep(told):
            return _as_text(path, size, data)
        text = _set_out(told)
    except (ValueError, RecursionError):
        return _as_text(path, size, data)
    return Preview(path, size, "json", text[:TEXT], cut=len(text) > TEXT)


def _is_deep(told: Any) -> bool:
    """Set out in lines, few bytes that are deep within each other become very many."""
    level = [told]
    for _ in range(_DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [one for each in inner for one in each]
        if not level:
            return False
    return True


def _set_out(told: Any) -> str:
    """As much of it as is shown, and a little more."""
    parts, length = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(told):
        parts.append(part)
        length += len(part)
        if length > TEXT:
            break
    return "".join(parts).encode("utf-8", "replace").decode("utf-8")  # half a pair of \ud83d is no text


def _as_table(path: str, size: int, data: bytes) -> Preview:
    text = data[:TEXT].decode("utf-8", "replace")
    rows = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter="\t" if path.lower().endswith(".tsv") else ","):
            rows.append(tuple(plain(cell, _CELL) for cell in row[:_COLUMNS]))
            if len(rows) > _ROWS:
                break
    except csv.Error:
        return _as_text(path, size, data)
    if not rows:
        return _as_text(path, size, data)
    return Preview(path, size, "table", "", rows[0], tuple(rows[1 : _ROWS + 1]), len(rows) > _ROWS or size > TEXT)


def _outputs(place: RunFolder) -> Sequence[Output]:
    """As many as are looked at. The list of a run that has ended is read once."""
    try:
        found = os.stat(place.manifest)
        stamp = (place.manifest, found.st_mtime_ns, found.st_size, found.st_ino)
    except OSError:
        stamp = None  # it goes on, and there may be others at any time
    known = _LISTS.get(stamp) if stamp else None
    if known is not None:
        return known
    each, _ = outputs_of(place)
    try:
        listed = [replace(one, sha256=None) for one in islice(each(), _LOOKED_AT)]
    except FileNotFoundError:
        return []  # it has not begun
    except OSError as error:
        raise HistoryError(f"cannot read the outputs: {error.strerror}") from error
    if stamp:
        _LISTS.put(stamp, listed)
    return listed


class _Lists:
    """Those that were looked at last, as long as they are not too many outputs in all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Stamp, list[Output]] = OrderedDict()

    def get(self, stamp: Stamp) -> list[Output] | None:
        with self._lock:
            if stamp in self._known:
                self._known.move_to_end(stamp)
            return self._known.get(stamp)

    def put(self, stamp: Stamp, listed: list[Output]) -> None:
        with self._lock:
            for old in [one for one in self._known if one[0] == stamp[0]]:
                del self._known[old]
            self._known[stamp] = listed
            while len(self._known) > _LISTED or (
                len(self._known) > 1 and sum(map(len, self._known.values())) > _LOOKED_AT
            ):
                self._known.popitem(last=False)


_LISTS = _Lists()


def is_home(history: History, run_id: str) -> bool:
    """All outputs of the run are on this machine."""
    run = history.get(run_id)
    return is_at_home(run, history.paths.root.run(run.spec.folder))


def is_at_home(run: Run, place: RunFolder) -> bool:
    return not run.spec.compute.address or fetch.is_home(place)


def _is_here(place: RunFolder, path: str) -> bool:
    return os.path.lexists(os.path.join(place.outputs, path))


def _logged(run: Run, path: str) -> str:
    told = run.files.get(path)
    kind = told.get("as") if isinstance(told, dict) else None
    return plain(str(kind), 40) if kind else ""
