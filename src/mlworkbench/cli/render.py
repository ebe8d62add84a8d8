"""Write all output: results and logs to stdout, messages and progress to stderr.

Untrusted text is escaped before it reaches a terminal.
"""

from __future__ import annotations

import errno
import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..errors import MlwError, UnknownName
from ..report import units
from ..sanitize import plain
from . import output_formats
from .terminal_safety import colors_enabled

TYPE_CHECKING = False  # importing typing would take longer than this module
if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO

FORMATS = ("table", "json", "jsonc", "tsv")

# Errors of a closed pipe or terminal. Windows reports a closed pipe as EINVAL.
_CLOSED_ERRORS = {errno.EPIPE, errno.EIO} | ({errno.EINVAL} if sys.platform == "win32" else set())
_RED, _YELLOW, _CYAN = "1;31", "1;33", "36"
_LABEL_COLORS = {"error: ": _RED, "hint: ": _CYAN}

_errors_as_json = False
_progress_shown = False  # a progress line is shown and must be erased before other output


class OutputClosed(SystemExit):
    """Quiet exit, like SIGPIPE, after the reader of stdout has closed the pipe (``mlw … | head``)."""

    def __init__(self) -> None:
        super().__init__(128 + 13)


def emit(data: object, *, output: str, query: str | None = None, columns: output_formats.Columns | None = None) -> None:
    """Write a result: a dict, a list of dicts, a list of scalars, or a scalar.

    ``columns`` selects the table's keys and their order, optionally with headings. A query changes the
    shape of the data, so its result is shown in full.
    """
    if output not in FORMATS:
        raise UnknownName("output format", output, FORMATS)
    data = output_formats.to_json_types(data)
    if query is not None:
        from ..report.value_format import finite  # noqa: PLC0415
        from .query_option import search  # noqa: PLC0415 - jmespath is imported only for queries

        data, columns = search(query, finite(data) if isinstance(data, list) else data), None
    if output == "table":
        _write_text(_format_table(output_formats.as_grid(data, columns, as_queried=query is not None)))
    elif output == "tsv":
        _write_text(output_formats.as_tsv(data, ordered=query is not None))
    else:
        text = output_formats.as_json(data, _encoding(sys.stdout))
        _write_text(output_formats.colorize_json(text) if output == "jsonc" and _use_color(sys.stdout) else text)


def write_bytes(data: bytes, stream: TextIO | None = None) -> None:
    """Write raw bytes, by default to stdout, and flush.

    The bytes are not filtered: callers that print a log to a terminal must pass it through ``TerminalFilter`` first.
    """
    stream = sys.stdout if stream is None else stream
    if stream is None:
        return
    if data:
        _redraw_progress(None)
    try:
        stream.flush()
        raw = getattr(stream, "buffer", None)
        if raw is None:  # StringIO in tests
            stream.write(data.decode(_encoding(stream), "replace"))
            return
        rest = memoryview(data)
        while rest:
            # With PYTHONUNBUFFERED, this is the raw file, which may perform partial writes.
            rest = rest[raw.write(rest) :]
        stream.flush()
    except OSError as error:
        _discard_output(stream)
        if error.errno in _CLOSED_ERRORS:
            raise OutputClosed from None
        raise MlwError(f"cannot write to standard output: {error.strerror}") from error


def message(text: str) -> None:
    """Print a message that is not part of the result."""
    _write_message("", "", text)


def warn(text: str) -> None:
    """Print a warning."""
    _write_message("warning: ", _YELLOW, text)


def report_errors_as_json() -> None:
    """Let ``fail`` print errors as a single line of JSON."""
    global _errors_as_json
    _errors_as_json = True


def fail(error: MlwError) -> None:
    """Print the error message and its hint."""
    from ..failure import Failure  # noqa: PLC0415 - only errors need it

    failure = Failure.of(error)
    if _errors_as_json:
        import json  # noqa: PLC0415 - only JSON errors need it

        _redraw_progress(None)
        _write_error(json.dumps({"error": failure.to_json()}) + "\n")
        return
    for label, text in failure.labeled():
        _write_message(label, _LABEL_COLORS[label], text)


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """Exit quietly, without a traceback, if the reader of stdout has closed the pipe."""
    try:
        yield
        write_bytes(b"")
    except BrokenPipeError:
        # Click writes help texts to stdout itself. A broken pipe elsewhere is an error.
        if sys.stdout is None or not _is_reader_gone(sys.stdout):
            raise
        _discard_output(sys.stdout)
        raise OutputClosed from None


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal. The stream is None if it was closed at startup."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # the stream has been closed
        return False


class Progress:
    """Progress of a long operation: ``snapshot  412 MB of 1.0 GB``.

    Redraws a single line on a terminal and prints a line occasionally elsewhere. Quick operations print
    nothing.
    """

    DELAY = 0.5
    REDRAW_INTERVAL = 0.1
    REPEAT_INTERVAL = 10.0

    def __init__(
        self,
        label: str,
        total: float | None = None,
        *,
        least: float = 0,
        show: Callable[[float], str] = units.size,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self._label = plain(label)
        self._least = least  # minimum total; smaller operations show no progress
        self._show = show
        self._clock = clock
        self._live = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._next = clock() + self.DELAY

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def update(self, done: float) -> None:
        """Set the progress. May be called as often as needed."""
        now = self._clock()
        if now < self._next or (self.total is not None and self.total < self._least):
            return
        self._next = now + (self.REDRAW_INTERVAL if self._live else self.REPEAT_INTERVAL)
        text = f"{self._label}  {self._show(done)}"
        if self.total is not None:
            text += f" of {self._show(self.total)}"
        if self._live:
            _redraw_progress(text)
        else:
            message(text)

    def report(self, done: int, total: int) -> None:
        """Set the progress and the total, for operations whose total is not known in advance."""
        self.total = total
        self.update(done)

    def close(self) -> None:
        """Erase the line after the operation has ended or failed."""
        _redraw_progress(None)
        self._next = math.inf


def _format_table(grid: output_formats.Grid | None) -> str:
    if grid is None:
        return ""
    if not is_terminal(sys.stdout):
        return output_formats.format_table(grid)
    if not output_formats.fits_width(grid, _terminal_width()):
        return output_formats.format_records(grid)
    # Rich draws lines with characters that other encodings lack.
    if _encoding(sys.stdout).lower().startswith("utf"):
        from .rich_table import draw_table  # noqa: PLC0415 - takes 100 ms; only terminals need it

        return draw_table(grid, width=_terminal_width(), color=colors_enabled())
    return output_formats.format_table(grid)


def _write_text(text: str) -> None:
    write_bytes(text.encode(_encoding(sys.stdout), "backslashreplace"))


def _write_message(label: str, color: str, text: str) -> None:
    _redraw_progress(None)
    # Continuation lines are indented, so that untrusted text cannot imitate an mlw message.
    body = ("\n" + " " * len(label)).join(plain(line) for line in text.split("\n"))
    if label and _use_color(sys.stderr):
        label = f"\x1b[{color}m{label.rstrip()}\x1b[0m "
    _write_error(f"{label}{body}\n")


def _redraw_progress(text: str | None) -> None:
    """Replace the current progress line; None erases it."""
    global _progress_shown
    if text is None and not _progress_shown:
        return
    _progress_shown = text is not None
    # A line that wraps could not be erased.
    _write_error("\r\x1b[K" + plain(text or "", _terminal_width() - 1))


def _write_error(text: str) -> None:
    if sys.stderr is None:
        return
    encoding = _encoding(sys.stderr)
    try:
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except OSError:
        # Messages can no longer be read, but the command continues.
        _discard_output(sys.stderr)


def _discard_output(stream: TextIO) -> None:
    """Redirect the stream to the null device. Otherwise, flushing at exit would fail."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


def _is_reader_gone(stream: TextIO) -> bool:
    """Return whether the reader has closed this stream."""
    if sys.platform == "win32":
        return True  # Windows cannot check this; stdout is the likely cause
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return False


def _use_color(stream: TextIO | None) -> bool:
    return is_terminal(stream) and colors_enabled()


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def width() -> int | None:
    """Return the width of the terminal or the value of ``COLUMNS``, or None if neither is known."""
    return _terminal_width() if is_terminal(sys.stdout) else _columns_variable()


def _columns_variable() -> int | None:
    value = os.environ.get("COLUMNS", "")
    return int(value) or None if value.isdecimal() else None


def _terminal_width() -> int:
    columns = _columns_variable()
    if columns:
        return columns
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            return os.get_terminal_size(stream.fileno()).columns or 80
    return 80
