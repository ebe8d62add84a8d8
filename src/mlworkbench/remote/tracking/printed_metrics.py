"""``key: value`` lines that a script prints → ``metrics/spoken``, where the run configuration asks for it.

Taken is a line that says nothing else: ``accuracy: 0.93``, ``loss=0.5, lr=1e-3``, ``Epoch 3/10 - loss: 0.5``,
and what Keras prints at the end of an epoch. ``epoch`` and ``step`` beside others are the step of these.
"""

from __future__ import annotations

import re
import time

from ..serve import read_plain
from .appended import Appended

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from .appended import Source

    Pairs = List[Tuple[str, float]]

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity|infinity)"
_PAIR = re.compile(r"\s*([A-Za-z_][\w./@%()-]{0,99})\s*[:=]\s*(" + _NUMBER + r")%?(?=[\s,;|]|\Z)[\s,;|]*")
_ONLY = re.compile(r"([A-Za-z_][\w ./@%()-]{0,99}?)\s{0,9}[:=]\s*(" + _NUMBER + r")\s*%?\Z")
_COUNT = re.compile(
    r"\[?(epoch|step|iteration|iter|batch)\s{0,9}[:=#]?\s{0,9}\[?"
    r"(\d{1,18})(?:\s*/\s*\d+)?\]?[\s\]:,;|-]*(?=[A-Za-z_]|\Z)",
    re.I,
)
_KERAS = re.compile(r"\d+/\d+\b[^:]*?(?:\s-\s+\S*s(?:\s+\S+/step)?)?\s-\s+(?=[A-Za-z_])")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STEPS = frozenset("epoch step iteration iter global_step batch".split())
_LONGEST = 1000  # characters of a line that is looked at
_CHUNK = 256 * 1024


def parse(line: str) -> "Optional[Tuple[Pairs, Optional[int]]]":
    """Names with their values, and the step; None if the line says something else, too."""
    if len(line) > _LONGEST or not (":" in line or "=" in line):
        return None
    line = _COLOURS.sub("", line.rpartition("\r")[2]).strip()
    step = None
    counted = _COUNT.match(line)
    if counted and counted.end() < len(line):
        step, line = int(counted.group(2)), line[counted.end() :]
    keras = _KERAS.match(line)
    if keras:
        line = line[keras.end() :]
    pairs = _pairs(line)
    if not pairs:
        return None
    others = [pair for pair in pairs if pair[0].lower() not in _STEPS]
    if others and len(others) < len(pairs):
        told = next(value for name, value in pairs if name.lower() in _STEPS)
        return others, int(told) if told - told == 0 and abs(told) < 2**63 else step
    return pairs, step


def _pairs(line: str) -> "Pairs":
    only = _ONLY.match(line)
    if only:
        return [(only.group(1), float(only.group(2)))]
    found, at = [], 0
    while at < len(line):
        pair = _PAIR.match(line, at)
        if pair is None:
            return []
        found.append((pair.group(1), float(pair.group(2))))
        at = pair.end()
        if line.startswith("- ", at):
            at += 2
    return found


class Spoken:
    """The lines of one run's log. Called now and then, and once after the end."""

    def __init__(self, log: str, target: str) -> None:
        self._log = log
        self._file = Appended(target)
        self.refused = False  # by the disk, the last time

    def look(self, seconds: float = 0.1, ended: bool = False) -> bool:
        """Take in what is new, for so long; whether that was all. A disk that refuses is tried again next time."""
        end = time.monotonic() + seconds
        try:
            self._file.open()
            source = self._file.sources.get("log") or self._file.add_source("log")
            while True:
                data = read_plain(self._log, source.at, _CHUNK)
                whole = data.rfind(b"\n") + 1
                if not whole and data and (ended or len(data) == _CHUNK):
                    # The last line may lack its end; one that fills everything is none that we could take.
                    whole = len(data)
                if not whole:
                    self.refused = False
                    return True
                self._take(source, data[:whole])
                self._file.write()
                if time.monotonic() >= end:
                    return False
        except OSError:
            self.refused = True
            return False

    def finish(self, seconds: float = 60.0) -> bool:
        try:
            return self.look(seconds, ended=True)
        finally:
            self._file.close()

    def _take(self, source: "Source", data: bytes) -> None:
        now = time.time()
        for line in _lines(data):
            found = parse(line.decode("utf-8", "replace").rstrip("\r\n"))
            for nth, (name, value) in enumerate(found[0] if found else ()):
                if nth >= source.done:
                    source.done = nth
                    self._file.add(source, name, value, now, found[1] if found else None)
            source.at, source.done = source.at + len(line), 0


def _lines(data: bytes) -> "List[bytes]":
    """A carriage return ends no line: progress bars write over themselves, and their last state counts."""
    *lines, rest = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([rest] if rest else [])
