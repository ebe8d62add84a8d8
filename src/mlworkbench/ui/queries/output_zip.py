"""All outputs of a run as one zip, made while it is sent: it is never whole in memory or on a disk."""

from __future__ import annotations

import hashlib
import os
import re
import time
import zipfile
from collections.abc import Iterator
from typing import BinaryIO

from ...errors import HistoryError, MlwError, UsageError
from ...history.store import History
from ...paths import RunFolder
from ...report.plain import plain
from ...runfiles.manifest import Output, outputs_of
from ...runfiles.outputfile import open_output
from .outputs import is_at_home

_CHUNK = 1 << 18
_LARGE = 1 << 30  # bytes; such a file may need the larger fields of a zip
_TOLD = 10_000  # of those that were left out
_LEVEL = 1  # what is large is mostly weights, which hardly get smaller
# What some system cannot have in a name, or takes for a folder; also half a pair, which is no text.
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\\:*?\"<>|\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OLDEST, _NEWEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)


def zipped(history: History, run_id: str) -> tuple[str, Iterator[bytes]]:
    """A name for the file, and its bytes. Links are left out, and said to be."""
    run = history.get(run_id)
    place = history.paths.root.run(run.spec.folder)
    if run.status.final and not is_at_home(run, place):
        raise UsageError(
            f"some outputs of run {run.id} are not on the machine that runs mlw ui",
            f"fetch them first: mlw history download {run.id}",
        )
    return f"{run.id}-outputs.zip", _stream(place, run.id)


class _Sink:
    """Takes what the zip is made of, until it is sent on. It cannot go back, so sizes stand behind each file."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def flush(self) -> None:
        return

    def close(self) -> None:
        return

    def full(self) -> bool:
        return len(self._data) >= _CHUNK

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


def _stream(place: RunFolder, top: str) -> Iterator[bytes]:
    sink = _Sink()
    skipped: list[str] = []
    each, _ = outputs_of(place)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as made:
        for one in _those_of(each()):
            handle = _opened(place, one, skipped)
            if handle is None:
                continue
            with open(handle, "rb") as file:
                for _ in _added(made, f"{top}/{safe(one.path)}", file):
                    if sink.full():
                        yield sink.take()
        if skipped:
            words = ["These files are not in the archive because they were deleted or are not regular files:", *skipped]
            made.writestr(f"{top}-left-out.txt", "\n".join(words) + "\n")
    yield sink.take()


def _those_of(each: Iterator[Output]) -> Iterator[Output]:
    try:
        yield from each
    except FileNotFoundError:
        return  # it has not begun


def _opened(place: RunFolder, one: Output, skipped: list[str]) -> int | None:
    try:
        if not one.is_file:
            raise HistoryError(f"{one.kind} {one.to}".strip())
        return open_output(place, one.path)
    except MlwError as error:
        if len(skipped) < _TOLD:
            skipped.append(plain(f"{one.path}: {error.message}", 500))
        return None


def _added(made: zipfile.ZipFile, name: str, file: BinaryIO) -> Iterator[None]:
    """Piece by piece, as much as there is now."""
    facts = os.fstat(file.fileno())
    try:
        moment = min(max(time.localtime(facts.st_mtime)[:6], _OLDEST), _NEWEST)
    except (ValueError, OverflowError, OSError):
        moment = _OLDEST
    about = zipfile.ZipInfo(name, moment)
    about.compress_type = zipfile.ZIP_DEFLATED
    about._compresslevel = _LEVEL  # type: ignore[attr-defined]  # its public name is newer than our oldest Python
    about.external_attr = 0o100644 << 16
    left = facts.st_size
    with made.open(about, "w", force_zip64=left > _LARGE) as member:
        while left > 0 and (data := file.read(min(_CHUNK, left))):
            left -= len(data)
            member.write(data)
            yield
    yield


def safe(path: str) -> str:
    """A name that leads nowhere else, and that every system can have. One that was changed stays one of a kind."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    kept = "/".join("__" if name == ".." else _ODD.sub("_", name) for name in names) or "_"
    if kept == path:
        return path
    return f"{kept}~{hashlib.sha256(path.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
