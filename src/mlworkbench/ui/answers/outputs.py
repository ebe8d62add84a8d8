"""The outputs of a run: what there is, what is on this machine, and a look into one that does no harm."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ...errors import HistoryError, UnknownName
from ...fetch import is_home
from ...history.store import History
from ...model import Run
from ...paths import RunFolder
from ...report.plain import plain
from ...runfiles.manifest import Output, outputs_of
from ...runfiles.outputfile import open_output

TEXT = 256 * 1024  # bytes of a text that is shown
_ENTRIES = 2000  # of one folder
_LOOKED_AT = 200_000  # outputs in all
_PICTURES = 500
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


@dataclass(frozen=True)
class Entry:
    """A file, or a folder with the number and the size of what is in it."""

    name: str
    path: str
    kind: str  # "file", "folder", "link" or what else it is
    size: int
    count: int = 1
    here: bool = True  # on this machine
    to: str = ""  # of a link
    logged: str = ""  # what the script said that it is: image, table, model, …


@dataclass(frozen=True)
class Listing:
    """One folder of a run's outputs."""

    folder: str
    entries: list[Entry]
    count: int  # files in all folders below
    size: int
    home: bool  # all outputs of the run are on this machine
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


def listing(history: History, run_id: str, folder: str = "") -> Listing:
    run = history.get(run_id)
    place = history.paths.root.run(run.spec.folder)
    home = _is_home(run, place)
    above = "".join(f"{name}/" for name in folder.split("/") if name not in ("", "."))
    found: dict[str, Entry] = {}
    count = size = seen = 0
    for one in islice(_outputs(place), _LOOKED_AT):
        seen += 1
        if not one.path.startswith(above):
            continue
        count, size = count + 1, size + one.size
        name, slash, _ = one.path[len(above) :].partition("/")
        known = found.get(name)
        if slash:
            before = (
                known if known is not None and known.kind == "folder" else Entry(name, above + name, "folder", 0, 0)
            )
            found[name] = Entry(name, above + name, "folder", before.size + one.size, before.count + 1)
        elif name:
            here = home or not one.is_file or _is_here(place, one.path)
            found[name] = Entry(name, one.path, _kind(one), one.size, 1, here, one.to, _logged(run, one.path))
    if above and not found:
        raise UnknownName("folder", folder, [])
    entries = sorted(found.values(), key=lambda one: (one.kind != "folder", one.name.lower()))
    more = len(entries) > _ENTRIES or seen == _LOOKED_AT
    return Listing(above.rstrip("/"), entries[:_ENTRIES], count, size, home, more)


def pictures(history: History, run_id: str) -> list[Picture]:
    """All images, by their names; what the script logged as one comes with its title and step."""
    run = history.get(run_id)
    place = history.paths.root.run(run.spec.folder)
    home = _is_home(run, place)
    found = []
    for one in islice(_outputs(place), _LOOKED_AT):
        if one.is_file and one.path.lower().endswith(_PICTURE_ENDS):
            told = run.files.get(one.path) or {}
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
    return handle, picture_type(os.pread(handle, _HEAD, 0)) or "application/octet-stream", not run.status.final


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
        return Preview(path, size, "none", "This is no text. Download it to look into it.")
    if path.lower().endswith((".csv", ".tsv")):
        return _as_table(path, size, data)
    if path.lower().endswith(".json") and size <= TEXT:
        return _as_json(path, size, data)
    return _as_text(path, size, data)


def _as_text(path: str, size: int, data: bytes) -> Preview:
    if b"\0" in data:
        return Preview(path, size, "none", "This is no text. Download it to look into it.")
    return Preview(path, size, "text", data[:TEXT].decode("utf-8", "replace"), cut=size > TEXT)


def _as_json(path: str, size: int, data: bytes) -> Preview:
    try:
        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return _as_text(path, size, data)
    return Preview(path, size, "json", text[:TEXT], cut=len(text) > TEXT)


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


def _outputs(place: RunFolder) -> Iterator[Output]:
    each, _ = outputs_of(place)
    try:
        yield from each()
    except FileNotFoundError:
        return  # it has not begun
    except OSError as error:
        raise HistoryError(f"the outputs cannot be read: {error.strerror}") from error


def _is_home(run: Run, place: RunFolder) -> bool:
    return not run.spec.compute.address or is_home(place)


def _is_here(place: RunFolder, path: str) -> bool:
    return os.path.lexists(os.path.join(place.outputs, path))


def _kind(one: Output) -> str:
    return "file" if one.is_file else one.kind


def _logged(run: Run, path: str) -> str:
    told = run.files.get(path)
    kind = told.get("as") if isinstance(told, dict) else None
    return plain(str(kind), 40) if kind else ""
