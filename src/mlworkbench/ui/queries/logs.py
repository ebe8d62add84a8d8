"""Logs of runs: any of their lines, a search, and all their bytes. What was counted of a log is kept for a while."""

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
from ...remote.shared.layout import is_outside
from ...remote.shared.tree import READ
from ...report import units
from ...runfiles.loglines import Line, LogLines
from ...runfiles.mask import Mask
from ...secret import find_secret

SHOWN = 8 * 1024  # characters of a line that are shown; the raw log has all of it
HITS = 10_000
SECONDS = 2.0  # that one request may index or search; the page asks again until it is done
_OVERLAP = 4096  # bytes of the longest text to search for
_KEPT = 32  # logs whose lines stay counted
_TRUST = 60.0  # seconds until the values of secrets are looked up again
_CHUNK = 1 << 18
WHICH = ("run", "build")


@dataclass(frozen=True)
class Piece:
    """Some lines of a log."""

    first: int
    total: int
    lines: list[str]
    final: bool  # the run has ended: no more lines come
    run: Run
    gap: int | None = None  # the line that says what is not shown; those behind it are the end of the log
    indexing: bool = False  # the same request returns more a little later


@dataclass(frozen=True)
class Hits:
    """The lines that contain a text."""

    lines: list[int]
    rest: int | None  # byte to go on from; None: all was searched


@dataclass
class _Open:
    lines: LogLines
    lock: threading.Lock = field(default_factory=threading.Lock)
    values: tuple[bytes, ...] = ()
    asked: float = float("-inf")


class Logs:
    """Those that were looked at last."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()

    def piece(self, history: History, run_id: str, first: int, count: int, which: str = "run") -> Piece:
        """``first`` below 0 counts from the end."""
        run, path = _place(history, run_id, which)
        one = self._of(path)
        with one.lock, _readable():
            head = one.lines.count(SECONDS)
            end = _end(one.lines, run.id)
            total = head + len(end)
            first = min(total, first if first >= 0 else max(0, total + first))
            found = one.lines.lines(first, min(count, head - first))
            values = _values(one, run)
        if first + len(found) >= head:  # else there are more of these
            found += end[max(0, first - head) :][: count - len(found)]
        lines = [_shown(_masked(line.data, values), line.cut) for line in found]
        missing, full = one.lines.missing > 0, one.lines.full
        return Piece(first, total, lines, run.status.final, run, head if missing else None, missing and not full)

    def find(
        self, history: History, run_id: str, text: str, first: int = 0, start: int = 0, which: str = "run"
    ) -> Hits:
        """From this line and this byte on; upper and lower case are the same."""
        _, path = _place(history, run_id, which)
        one = self._of(path)
        with one.lock, _readable():
            one.lines.count(SECONDS)
            found = one.lines.find(text, first, HITS, start=start, seconds=SECONDS)
            rest = found.rest
            if rest is None and one.lines.missing and not one.lines.full:
                rest = max(0, one.lines.size - _OVERLAP)  # what the next request indexes
        return Hits(found.lines, rest)

    def _of(self, path: str) -> _Open:
        with self._lock:
            found = self._open.pop(path, None) or _Open(LogLines(path))
            self._open[path] = found
            while len(self._open) > self._most:
                self._open.popitem(last=False)
            return found


def _end(lines: LogLines, run_id: str) -> list[Line]:
    """What follows the indexed lines of a large log: a sentence on what is missing, and the last lines."""
    if not lines.missing:
        return []
    last = lines.tail()
    hidden = units.size(max(0, lines.missing - sum(len(line.data) + 1 for line in last)))
    if lines.full:
        words = f"[{hidden} omitted; for the complete log, click Download or run: mlw logs {run_id}]"
    else:
        words = f"[{hidden} not indexed yet]"
    return [Line(0, words.encode()), *last]


def raw(history: History, run_id: str, which: str = "run") -> tuple[str, Iterator[bytes]]:
    """A name for the file, and its bytes as they are now; values of secrets that are known here are hidden."""
    run, path = _place(history, run_id, which)
    try:
        with _readable():
            handle = os.open(path, READ)
    except FileNotFoundError:
        raise UsageError(f"run {run.id} has no such log", "the run may not have started yet") from None
    values = _values(_Open(LogLines(path)), run)
    return f"{run.spec.folder}{'' if which == 'run' else '-build'}.log", _bytes(open(handle, "rb"), values)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:  # such as a link in its place
        raise HistoryError(f"cannot read the log: {error.strerror}") from error


def has_build_log(folder: RunFolder) -> bool:
    try:
        return os.lstat(folder.build_log).st_size > 0
    except OSError:
        return False


def _place(history: History, run_id: str, which: str) -> tuple[Run, str]:
    run = history.get(run_id)
    if which not in WHICH:
        raise UnknownName("log", which, WHICH)
    if is_outside(run.spec.folder):
        raise UsageError(
            f"run {run.id} was started without mlw and has no log", "its output went to the terminal that started it"
        )
    folder = history.paths.root.run(run.spec.folder)
    return run, folder.log if which == "run" else folder.build_log


def _values(one: _Open, run: Run) -> tuple[bytes, ...]:
    """Of the run's secrets, as far as they can be had without asking."""
    if run.spec.secrets and time.monotonic() - one.asked > _TRUST:
        one.asked = time.monotonic()
        found = []
        for name in run.spec.secrets:
            try:
                found.append(os.fsencode(find_secret(name, ask=False)))
            except UsageError:
                continue  # then it cannot be hidden, either
        one.values = tuple(found)
    return one.values


def _masked(data: bytes, values: tuple[bytes, ...]) -> bytes:
    if not values:
        return data
    mask = Mask(values)
    return mask.feed(data) + mask.end()


def _shown(data: bytes, cut: bool) -> str:
    """As a terminal would leave it: what a carriage return wrote over is gone."""
    text = data.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    return text[:SHOWN] + "…" if cut or len(text) > SHOWN else text


def _bytes(file: BinaryIO, values: tuple[bytes, ...]) -> Iterator[bytes]:
    mask = Mask(values)
    with file:
        left = os.fstat(file.fileno()).st_size  # what comes later belongs to the next download
        while left > 0 and (data := file.read(min(_CHUNK, left))):
            left -= len(data)
            yield mask.feed(data)
    yield mask.end()
