"""Record metrics in lines that a script prints, if the run configuration enables it.

The metrics are written to ``metrics/spoken``. A line must contain nothing else: ``accuracy: 0.93``,
``loss=0.5, lr=1e-3``, ``Epoch 3/10 - loss: 0.5``, a dict as Hugging Face prints it (``{'loss': 0.5}``), a progress bar
of tqdm (``100%|███| 9/9 [00:01<00:00, 9.1it/s, loss=0.3]``), or a complete progress line of Keras.
Whole numbers for ``epoch`` and ``step`` next to other values become the step of those values.
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
_NAME = r"[A-Za-z_][\w./@%()-]{0,99}"
_PAIR = re.compile(r"\s*(" + _NAME + r")\s*[:=]\s*(" + _NUMBER + r")%?(?=[\s,;|]|\Z)[\s,;|]*")
_SINGLE_PAIR = re.compile(r"([A-Za-z_][\w ./@%()-]{0,99}?)\s{0,9}[:=]\s*(" + _NUMBER + r")\s*%?\Z")
_DICT_PAIR = re.compile(
    r"\s*(?:'([\w ./@%()-]{1,100})'|\"([\w ./@%()-]{1,100})\")\s*:\s*"
    r"(?:(?:np\.float\d+\(|np\.int\d+\(|tensor\(|['\"])?(" + _NUMBER + r")(?:, device='[\w:]*')?[)'\"]?|None|null)"
    r"\s*(?:,|\Z)"
)
_STEP_PREFIX = re.compile(
    r"\[?(epoch|step|iteration|iter|batch)\s{0,9}[:=#]?\s{0,9}\[?"
    r"(\d{1,18})(?:\s*/\s*\d+)?\]?[\s\]:,;|-]*(?=[A-Za-z_]|\Z)",
    re.I,
)
_STEP_IN_TITLE = re.compile(r"\s*(?:epoch|step|iteration|iter)\s{0,9}[:=#]?\s{0,9}\[?(\d{1,18})\b", re.I)
_KERAS_PREFIX = re.compile(r"(\d+)/(\d+)\b[^:]*?(?:\s-\s+\S*s(?:\s+\S+/step)?)?\s-\s+(?=[A-Za-z_])")
# The end of a tqdm bar: elapsed and remaining time, rate, and the values of set_postfix.
_TQDM = re.compile(r" \[\d[\d:]*(?:<[\d:?]+)?,[^,/\[\]]*/[^,/\[\]]*(?:,([^\[\]]*))?\]\Z")
_COLOR_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\x08")
_CLOCK_TIME = re.compile(r"(?<![\w.])\d{1,2}:\d{2}(?!\d)")
_STEP_NAMES = ("global_step", "step", "iteration", "iter", "batch", "epoch")  # in the order of precedence
_LOG_LEVELS = frozenset("debug info notice warn warning critical fatal trace".split())
_IGNORED_POSTFIX = frozenset(["v_num"])  # version of the Lightning logger
_MAX_LINE = 1000  # maximum characters; longer lines are ignored
_CHUNK = 256 * 1024


def parse_line(line: str) -> "Optional[Tuple[Pairs, Optional[int]]]":
    """Return pairs of name and value, and the step, or None if the line contains other text."""
    line = line.rstrip("\r\n ").rpartition("\r")[2]  # the last state of a progress bar
    if len(line) > _MAX_LINE or not (":" in line or "=" in line):
        return None
    line = _COLOR_CODES.sub("", line).strip()
    if line.endswith("}"):
        return _parse_dict(line)
    if line.endswith("]"):
        return _parse_tqdm(line)
    step = None
    prefix = _STEP_PREFIX.match(line)
    if prefix and prefix.end() < len(line):
        step, line = int(prefix.group(2)), line[prefix.end() :]
    keras = _KERAS_PREFIX.match(line)
    if keras:
        if keras.group(1) != keras.group(2):
            return None  # the mean over a part of the epoch
        line = line[keras.end() :]
    return _with_step(_parse_pairs(line), step)


def _with_step(pairs: "List[Tuple[str, str]]", step: "Optional[int]") -> "Optional[Tuple[Pairs, Optional[int]]]":
    """Convert values to numbers. A whole number for ``step`` or ``epoch`` becomes the step of the other values."""
    if not pairs or any(_is_log_level(name) for name, _ in pairs):
        return None
    texts = {name.lower(): text for name, text in reversed(pairs)}
    for step_name in _STEP_NAMES:
        text = texts.get(step_name, "")
        if text.isdigit() and len(text) <= 18 and any(name.lower() not in _STEP_NAMES for name, _ in pairs):
            step = int(text)
            pairs = [pair for pair in pairs if pair[0].lower() not in _STEP_NAMES or not pair[1].isdigit()]
            break
    return [(name, float(text)) for name, text in pairs], step


def _is_log_level(name: str) -> bool:
    words = name.split()
    return "ERROR" in words or words == ["Error"] or not _LOG_LEVELS.isdisjoint(word.lower() for word in words)


def _parse_pairs(line: str) -> "List[Tuple[str, str]]":
    single = _SINGLE_PAIR.match(line)
    if single:
        return [] if _CLOCK_TIME.search(line) else [(single.group(1), single.group(2))]
    pairs, position = [], 0
    while position < len(line):
        pair = _PAIR.match(line, position)
        if pair is None:
            return []
        pairs.append((pair.group(1), pair.group(2)))
        position = pair.end()
        if line.startswith("- ", position):
            position += 2
    return pairs


def _parse_dict(line: str) -> "Optional[Tuple[Pairs, Optional[int]]]":
    """Parse a dict of numbers, as Hugging Face prints it. It may follow a progress bar on the same line."""
    start = line.find("{")
    before, text = line[:start].rstrip(), line[start + 1 : -1]
    if before and _match_tqdm(before) is None:
        return None
    pairs, position = [], 0
    while position < len(text):
        pair = _DICT_PAIR.match(text, position)
        if pair is None:
            return None
        if pair.group(3) is not None:
            pairs.append((pair.group(1) or pair.group(2), pair.group(3)))
        position = pair.end()
    return _with_step(pairs, None)


def _match_tqdm(line: str) -> "Optional[re.Match[str]]":
    return _TQDM.match(line, max(0, line.rfind(" [")))


def _parse_tqdm(line: str) -> "Optional[Tuple[Pairs, Optional[int]]]":
    bar = _match_tqdm(line)
    if bar is None:
        return None
    pairs = []
    for item in (bar.group(1) or "").split(","):
        pair = _PAIR.fullmatch(item)
        if pair and pair.group(1) not in _IGNORED_POSTFIX:
            pairs.append((pair.group(1), pair.group(2)))
    title = _STEP_IN_TITLE.match(line)
    return _with_step(pairs, int(title.group(1)) if title else None)


def _is_progress(line: bytes) -> bool:
    """Return whether the line is a progress line of Keras, which the next one may replace."""
    if len(line) > 4 * _MAX_LINE or b"/" not in line:
        return False
    text = _COLOR_CODES.sub("", line.decode("utf-8", "replace").rstrip("\r\n ").rpartition("\r")[2]).strip()
    return len(text) <= _MAX_LINE and _KERAS_PREFIX.match(text) is not None


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
                is_last = len(data) < _CHUNK
                end = data.rfind(b"\n") + 1
                if not end and not is_last:
                    # A line that fills the buffer has no metrics, unless it is a progress bar: skip to its last state.
                    source.offset += max(data.rfind(b"\r"), 0) or len(data)
                    continue
                if ended and is_last:
                    end = len(data)  # the last line may lack a line break
                if not self._append_metrics(source, data[:end], ended and is_last):
                    self.disk_failed = False
                    return True
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

    def _append_metrics(self, source: "Source", data: bytes, ended: bool) -> bool:
        """Append the metrics of these lines, and return whether any line was used."""
        now, start = time.time(), source.offset
        lines = _split_lines(data)
        for index, line in enumerate(lines):
            is_progress = _is_progress(line)
            if is_progress and index + 1 == len(lines) and not ended:
                break  # wait for the next line
            is_replaced = is_progress and index + 1 < len(lines) and _is_progress(lines[index + 1])
            metrics = None if is_replaced else parse_line(line.decode("utf-8", "replace"))
            for number, (name, value) in enumerate(metrics[0] if metrics else ()):
                if number >= source.values_done:
                    source.values_done = number
                    self._file.add(source, name, value, now, metrics[1] if metrics else None)
            source.offset, source.values_done = source.offset + len(line), 0
        return source.offset > start


def _split_lines(data: bytes) -> "List[bytes]":
    """Split at line feeds only.

    Progress bars overwrite themselves after a carriage return, and only their last state counts.
    """
    *lines, rest = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([rest] if rest else [])
