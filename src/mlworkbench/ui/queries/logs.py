"""Run logs: line ranges, search, and download. Line indexes are cached."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from ...errors import HistoryError, UnknownName, UsageError
from ...history.store import History
from ...model import Run
from ...paths import RunFolder
from ...remote.shared.folder_tree import READ
from ...remote.shared.layout import is_untracked
from ...report import units
from ...runfiles.log_lines import Line, LogLines
from ...runfiles.secret_masking import Mask
from ...secret_sources import find_secret

MAX_LINE = 8 * 1024  # maximum characters shown per line; the raw log is complete
MAX_HITS = 10_000
TIME_LIMIT = 2.0  # maximum seconds per request to index or search; the page repeats the request until it is done
_OVERLAP = 4096  # maximum bytes of the text to search for
_MAX_OPEN = 32  # maximum logs with cached line indexes
_SECRETS_MAX_AGE = 60.0  # seconds before secret values are reloaded
_CHUNK = 1 << 18
WHICH = ("run", "build")


@dataclass(frozen=True)
class LogChunk:
    """Range of log lines."""

    first: int
    total: int
    lines: list[str]
    final: bool  # the run has ended; no more lines will follow
    run: Run
    gap: int | None = None  # number of the line that reports omitted output; the log's end follows
    indexing: bool = False  # a later request returns more


@dataclass(frozen=True)
class Hits:
    """Lines that contain the search text."""

    lines: list[int]
    rest: int | None  # byte offset to continue from; None: search is complete


@dataclass
class _OpenLog:
    lines: LogLines
    lock: threading.Lock = field(default_factory=threading.Lock)
    secrets: tuple[bytes, ...] = ()
    loaded: float = float("-inf")


class Logs:
    """Cache of recently used logs."""

    def __init__(self, max_open: int = _MAX_OPEN) -> None:
        self._max_open = max_open
        self._logs: OrderedDict[str, _OpenLog] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, history: History, run_id: str, first: int, count: int, which: str = "run") -> LogChunk:
        """Return a range of lines. A negative ``first`` counts from the end."""
        run, path = _locate(history, run_id, which)
        log = self._open_log(path)
        with log.lock, _readable():
            head = log.lines.count(TIME_LIMIT)
            end = _tail_lines(log.lines, run.id)
            total = head + len(end)
            first = min(total, first if first >= 0 else max(0, total + first))
            records = log.lines.lines(first, min(count, head - first))
            values = _secret_values(log, run)
        if first + len(records) >= head:  # no more indexed lines follow
            records += end[max(0, first - head) :][: count - len(records)]
        texts = [_displayed(_masked(line.data, values), line.cut) for line in records]
        missing, full = log.lines.missing > 0, log.lines.full
        return LogChunk(first, total, texts, run.status.final, run, head if missing else None, missing and not full)

    def find(
        self, history: History, run_id: str, text: str, first: int = 0, start: int = 0, which: str = "run"
    ) -> Hits:
        """Return the lines from ``first`` on that contain the text, ignoring case.

        ``start`` is the byte offset where the search begins: ``rest`` of the previous result, or 0.
        """
        _, path = _locate(history, run_id, which)
        log = self._open_log(path)
        with log.lock, _readable():
            log.lines.count(TIME_LIMIT)
            hits = log.lines.find(text, first, MAX_HITS, start=start, seconds=TIME_LIMIT)
            rest = hits.rest
            if rest is None and log.lines.missing and not log.lines.full:
                rest = max(0, log.lines.size - _OVERLAP)  # continue with the part that the next request will index
        return Hits(hits.lines, rest)

    def _open_log(self, path: str) -> _OpenLog:
        with self._lock:
            log = self._logs.pop(path, None) or _OpenLog(LogLines(path))
            self._logs[path] = log
            while len(self._logs) > self._max_open:
                self._logs.popitem(last=False)
            return log


def _tail_lines(lines: LogLines, run_id: str) -> list[Line]:
    """Return the lines after the indexed part of a large log.

    These are a message about the omitted part and the last lines of the log.
    """
    if not lines.missing:
        return []
    last = lines.tail()
    hidden = units.size(max(0, lines.missing - sum(len(line.data) + 1 for line in last)))
    if lines.full:
        message = f"[{hidden} omitted; for the complete log, click Download or run: mlw logs {run_id}]"
    else:
        message = f"[{hidden} not indexed yet]"
    return [Line(0, message.encode()), *last]


def raw(history: History, run_id: str, which: str = "run") -> tuple[str, Iterator[bytes]]:
    """Return a file name and the current content of the log, with known secret values masked."""
    run, path = _locate(history, run_id, which)
    try:
        with _readable():
            handle = os.open(path, READ)
    except FileNotFoundError:
        raise UsageError(f"run {run.id} has no such log", "the run may not have started yet") from None
    values = _secret_values(_OpenLog(LogLines(path)), run)
    return f"{run.spec.folder}{'' if which == 'run' else '-build'}.log", _bytes(open(handle, "rb"), values)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:  # for example, the log is a symbolic link
        raise HistoryError(f"cannot read the log: {error.strerror}") from error


def has_build_log(folder: RunFolder) -> bool:
    try:
        return os.lstat(folder.build_log).st_size > 0
    except OSError:
        return False


def _locate(history: History, run_id: str, which: str) -> tuple[Run, str]:
    run = history.get(run_id)
    if which not in WHICH:
        raise UnknownName("log", which, WHICH)
    if is_untracked(run.spec.folder):
        raise UsageError(
            f"run {run.id} was started without mlw and has no log", "its output went to the terminal that started it"
        )
    folder = history.paths.root.run(run.spec.folder)
    return run, folder.log if which == "run" else folder.build_log


def _secret_values(log: _OpenLog, run: Run) -> tuple[bytes, ...]:
    """Return the values of the run's secrets that can be read without prompting."""
    if run.spec.secrets and time.monotonic() - log.loaded > _SECRETS_MAX_AGE:
        log.loaded = time.monotonic()
        values = []
        for name in run.spec.secrets:
            try:
                values.append(os.fsencode(find_secret(name, ask=False)))
            except UsageError:
                continue  # an unavailable value cannot be masked
        log.secrets = tuple(values)
    return log.secrets


def _masked(data: bytes, values: tuple[bytes, ...]) -> bytes:
    if not values:
        return data
    mask = Mask(values)
    return mask.feed(data) + mask.end()


def _displayed(data: bytes, cut: bool) -> str:
    """Return the text as a terminal displays it: a carriage return overwrites the preceding text."""
    text = data.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    return text[:MAX_LINE] + "…" if cut or len(text) > MAX_LINE else text


def _bytes(file: BinaryIO, values: tuple[bytes, ...]) -> Iterator[bytes]:
    mask = Mask(values)
    with file:
        left = os.fstat(file.fileno()).st_size  # ignore output written after this point
        while left > 0 and (data := file.read(min(_CHUNK, left))):
            left -= len(data)
            yield mask.feed(data)
    yield mask.end()
