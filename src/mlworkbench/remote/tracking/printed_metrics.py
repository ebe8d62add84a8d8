"""Record ``key: value`` lines that a script prints, if the run configuration enables it.

The metrics are written to ``metrics/spoken``. A line must contain nothing else: ``accuracy: 0.93``,
``loss=0.5, lr=1e-3``, ``Epoch 3/10 - loss: 0.5``, or what Keras prints at the end of an epoch.
``epoch`` and ``step`` next to other values become the step of those values.
"""

from __future__ import annotations

import re
import time

from ..run_reader import read_regular_file
from .metrics_appender import MetricsAppender

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from .metrics_appender import Source

    Pairs = List[Tuple[str, float]]

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity|infinity)"
_PAIR = re.compile(r"\s*([A-Za-z_][\w./@%()-]{0,99})\s*[:=]\s*(" + _NUMBER + r")%?(?=[\s,;|]|\Z)[\s,;|]*")
_SINGLE_PAIR = re.compile(r"([A-Za-z_][\w ./@%()-]{0,99}?)\s{0,9}[:=]\s*(" + _NUMBER + r")\s*%?\Z")
_STEP_PREFIX = re.compile(
    r"\[?(epoch|step|iteration|iter|batch)\s{0,9}[:=#]?\s{0,9}\[?"
    r"(\d{1,18})(?:\s*/\s*\d+)?\]?[\s\]:,;|-]*(?=[A-Za-z_]|\Z)",
    re.I,
)
_KERAS_PREFIX = re.compile(r"\d+/\d+\b[^:]*?(?:\s-\s+\S*s(?:\s+\S+/step)?)?\s-\s+(?=[A-Za-z_])")
_COLOR_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STEP_NAMES = frozenset("epoch step iteration iter global_step batch".split())
_MAX_LINE = 1000  # maximum characters; longer lines are ignored
_CHUNK = 256 * 1024


def parse_line(line: str) -> "Optional[Tuple[Pairs, Optional[int]]]":
    """Return pairs of name and value, and the step, or None if the line contains other text."""
    if len(line) > _MAX_LINE or not (":" in line or "=" in line):
        return None
    line = _COLOR_CODES.sub("", line.rpartition("\r")[2]).strip()
    step = None
    prefix = _STEP_PREFIX.match(line)
    if prefix and prefix.end() < len(line):
        step, line = int(prefix.group(2)), line[prefix.end() :]
    keras = _KERAS_PREFIX.match(line)
    if keras:
        line = line[keras.end() :]
    pairs = _parse_pairs(line)
    if not pairs:
        return None
    others = [pair for pair in pairs if pair[0].lower() not in _STEP_NAMES]
    if others and len(others) < len(pairs):
        value_of_step = next(value for name, value in pairs if name.lower() in _STEP_NAMES)
        return others, int(value_of_step) if value_of_step - value_of_step == 0 and abs(value_of_step) < 2**63 else step
    return pairs, step


def _parse_pairs(line: str) -> "Pairs":
    single = _SINGLE_PAIR.match(line)
    if single:
        return [(single.group(1), float(single.group(2)))]
    pairs, position = [], 0
    while position < len(line):
        pair = _PAIR.match(line, position)
        if pair is None:
            return []
        pairs.append((pair.group(1), float(pair.group(2))))
        position = pair.end()
        if line.startswith("- ", position):
            position += 2
    return pairs


class PrintedMetricsReader:
    """Reader of metrics in a run's log. Call ``poll`` regularly, and ``finish`` after the run."""

    def __init__(self, log: str, target: str) -> None:
        self._log = log
        self._file = MetricsAppender(target)
        self.disk_failed = False  # whether the last poll failed

    def poll(self, seconds: float = 0.1, ended: bool = False) -> bool:
        """Read new lines for at most ``seconds``, and return whether the end was reached.

        Disk errors are retried later.
        """
        deadline = time.monotonic() + seconds
        try:
            self._file.open()
            source = self._file.sources.get("log") or self._file.add_source("log")
            while True:
                data = read_regular_file(self._log, source.offset, _CHUNK)
                end = data.rfind(b"\n") + 1
                if not end and data and (ended or len(data) == _CHUNK):
                    # The last line may lack a line break. A line that fills the buffer contains no metrics.
                    end = len(data)
                if not end:
                    self.disk_failed = False
                    return True
                self._append_metrics(source, data[:end])
                self._file.write()
                if time.monotonic() >= deadline:
                    return False
        except OSError:
            self.disk_failed = True
            return False

    def finish(self, seconds: float = 60.0) -> bool:
        try:
            return self.poll(seconds, ended=True)
        finally:
            self._file.close()

    def _append_metrics(self, source: "Source", data: bytes) -> None:
        now = time.time()
        for line in _split_lines(data):
            metrics = parse_line(line.decode("utf-8", "replace").rstrip("\r\n"))
            for index, (name, value) in enumerate(metrics[0] if metrics else ()):
                if index >= source.values_done:
                    source.values_done = index
                    self._file.add(source, name, value, now, metrics[1] if metrics else None)
            source.offset, source.values_done = source.offset + len(line), 0


def _split_lines(data: bytes) -> "List[bytes]":
    """Split at line feeds only.

    Progress bars overwrite themselves after a carriage return, and only their last state counts.
    """
    *lines, rest = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([rest] if rest else [])
