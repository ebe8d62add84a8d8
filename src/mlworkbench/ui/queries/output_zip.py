"""ZIP archive of all outputs of a run, streamed so that it is never entirely in memory or on disk."""

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
from ...runfiles.output_file import open_output
from ...runfiles.output_manifest import Output, outputs_of
from ...sanitize import plain
from .outputs import is_available

_CHUNK = 1 << 18
_ZIP64_SIZE = 1 << 30  # bytes; larger files may need ZIP64 fields
_MAX_SKIPPED = 10_000  # maximum number of skipped files to list
_LEVEL = 1  # fastest: large files are mostly model weights, which hardly compress
# Characters that some systems forbid in names or treat as separators, and lone surrogates.
_UNSAFE_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\\:*?\"<>|\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OLDEST, _NEWEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)


def stream_zip(history: History, run_id: str) -> tuple[str, Iterator[bytes]]:
    """Return a file name and the content of the archive. Links are skipped and listed in a text file."""
    run = history.get(run_id)
    folder = history.paths.root.run(run.spec.folder)
    if run.status.final and not is_available(run, folder):
        raise UsageError(
            f"some outputs of run {run.id} are not on the machine that runs mlw ui",
            f"fetch them first: mlw history download {run.id}",
        )
    return f"{run.id}-outputs.zip", _stream(folder, run.id)


class _Sink:
    """Buffer between the archive and the response.

    It is not seekable, so the sizes of each file are written after its data.
    """

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


def _stream(folder: RunFolder, top: str) -> Iterator[bytes]:
    sink = _Sink()
    skipped: list[str] = []
    each, _ = outputs_of(folder)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for output in _existing(each()):
            handle = _open_member(folder, output, skipped)
            if handle is None:
                continue
            with open(handle, "rb") as file:
                for _ in _add_member(archive, f"{top}/{safe_member_name(output.path)}", file):
                    if sink.full():
                        yield sink.take()
        if skipped:
            lines = ["These files are not in the archive because they were deleted or are not regular files:", *skipped]
            archive.writestr(f"{top}-left-out.txt", "\n".join(lines) + "\n")
    yield sink.take()


def _existing(each: Iterator[Output]) -> Iterator[Output]:
    try:
        yield from each
    except FileNotFoundError:
        return  # the run has not started


def _open_member(folder: RunFolder, output: Output, skipped: list[str]) -> int | None:
    try:
        if not output.is_file:
            raise HistoryError(f"{output.kind} {output.to}".strip())
        return open_output(folder, output.path)
    except MlwError as error:
        if len(skipped) < _MAX_SKIPPED:
            skipped.append(plain(f"{output.path}: {error.message}", 500))
        return None


def _add_member(archive: zipfile.ZipFile, name: str, file: BinaryIO) -> Iterator[None]:
    """Add a file in chunks, up to its current size."""
    status = os.fstat(file.fileno())
    try:
        modified = min(max(time.localtime(status.st_mtime)[:6], _OLDEST), _NEWEST)
    except (ValueError, OverflowError, OSError):
        modified = _OLDEST
    info = zipfile.ZipInfo(name, modified)
    info.compress_type = zipfile.ZIP_DEFLATED
    info._compresslevel = _LEVEL  # type: ignore[attr-defined]  # its public name is newer than our oldest Python
    info.external_attr = 0o100644 << 16
    left = status.st_size
    with archive.open(info, "w", force_zip64=left > _ZIP64_SIZE) as member:
        while left > 0 and (data := file.read(min(_CHUNK, left))):
            left -= len(data)
            member.write(data)
            yield
    yield


def safe_member_name(path: str) -> str:
    """Return a member name that is valid on every system and stays inside the folder.

    Modified names remain unique.
    """
    names = [name for name in path.split("/") if name not in ("", ".")]
    member = "/".join("__" if name == ".." else _UNSAFE_CHARACTERS.sub("_", name) for name in names) or "_"
    if member == path:
        return path
    return f"{member}~{hashlib.sha256(path.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
