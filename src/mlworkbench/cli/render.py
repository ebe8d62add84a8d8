"""The only place that writes: results and logs to stdout, messages and progress to stderr.

Nothing that came from outside reaches a terminal unescaped, and nothing is decided here.
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
from ..report.plain import plain
from . import formats
from .screen import colours

TYPE_CHECKING = False  # as in typing, whose import would cost more than this module
if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO

FORMATS = ("table", "json", "jsonc", "tsv")

# A closed pipe, a terminal that went away; EINVAL is what Windows says of a closed pipe.
_GONE = {errno.EPIPE, errno.EIO} | ({errno.EINVAL} if sys.platform == "win32" else set())
_RED, _YELLOW, _CYAN = "1;31", "1;33", "36"
_LABEL_COLOURS = {"error: ": _RED, "hint: ": _CYAN}

_errors_as_json = False
_line_shown = False  # a progress line stands on the terminal and must go before anything else is written


class OutputClosed(SystemExit):
    """Nobody reads stdout any more (``mlw … | head``). Ends the program quietly, as SIGPIPE would."""

    def __init__(self) -> None:
        super().__init__(128 + 13)


def emit(data: object, *, output: str, query: str | None = None, columns: formats.Columns | None = None) -> None:
    """Write a result: a dict, a list of dicts, a list of scalars or a scalar.

    ``columns`` names the keys of a table and their order, with headings or without; a query makes a new shape, which
    is shown whole.
    """
    if output not in FORMATS:
        raise UnknownName("output format", output, FORMATS)
    data = formats.simple(data)
    if query is not None:
        from .query import search  # noqa: PLC0415 - jmespath is loaded only when asked for

        data, columns = search(query, data), None
    if output == "table":
        _write(_table(formats.as_grid(data, columns, as_queried=query is not None)))
    elif output == "tsv":
        _write(formats.as_tsv(data, ordered=query is not None))
    else:
        text = formats.as_json(data, _encoding(sys.stdout))
        _write(formats.tint(text) if output == "jsonc" and _colourful(sys.stdout) else text)


def pour(data: bytes, stream: TextIO | None = None) -> None:
    """Write bytes as they are, and at once; to stdout if not told. A log for a terminal has been through a Screen."""
    stream = sys.stdout if stream is None else stream
    if stream is None:
        return
    if data:
        _redraw(None)
    try:
        stream.flush()
        raw = getattr(stream, "buffer", None)
        if raw is None:  # a test's StringIO
            stream.write(data.decode(_encoding(stream), "replace"))
            return
        rest = memoryview(data)
        while rest:
            # Under PYTHONUNBUFFERED this is the bare file, which may take only a part.
            rest = rest[raw.write(rest) :]
        stream.flush()
    except OSError as error:
        _abandon(stream)
        if error.errno in _GONE:
            raise OutputClosed from None
        raise MlwError(f"cannot write to standard output: {error.strerror}") from error


def message(text: str) -> None:
    """Tell the user something that is not the result."""
    _tell("", "", text)


def warn(text: str) -> None:
    """Tell the user of something that did not stop us."""
    _tell("warning: ", _YELLOW, text)


def report_errors_as_json() -> None:
    """Print the error that ends the command as one line of JSON, for programs."""
    global _errors_as_json
    _errors_as_json = True


def fail(error: MlwError) -> None:
    """Tell the user why we stopped, and what to do about it."""
    from ..failure import Failure  # noqa: PLC0415 - only a failure needs it

    failure = Failure.of(error)
    if _errors_as_json:
        import json  # noqa: PLC0415 - only programs need it

        _redraw(None)
        _write_error(json.dumps({"error": failure.to_json()}) + "\n")
        return
    for label, text in failure.labeled():
        _tell(label, _LABEL_COLOURS[label], text)


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """Around the whole program: a reader of stdout that went away is no error, and leaves no traceback."""
    try:
        yield
        pour(b"")
    except BrokenPipeError:
        # Click writes help texts by itself. Any other pipe that broke is not ours to hide.
        if sys.stdout is None or not _unread(sys.stdout):
            raise
        _abandon(sys.stdout)
        raise OutputClosed from None


def terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at this stream (None is one that was closed before we began)."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed meanwhile
        return False


class Progress:
    """What a long piece of work has done so far: ``snapshot  412 MB of 1.0 GB``.

    One line redrawn on a terminal, a line now and then elsewhere, nothing if the work is quick.
    """

    PATIENCE = 0.5
    REDRAW = 0.1
    REPEAT = 10.0

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
        self._least = least  # of the total; where there is less to do, nobody wants to hear of it
        self._show = show
        self._clock = clock
        self._live = terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._next = clock() + self.PATIENCE

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def update(self, done: float) -> None:
        """Say how far the work is; called as often as one likes."""
        now = self._clock()
        if now < self._next or (self.total is not None and self.total < self._least):
            return
        self._next = now + (self.REDRAW if self._live else self.REPEAT)
        text = f"{self._label}  {self._show(done)}"
        if self.total is not None:
            text += f" of {self._show(self.total)}"
        if self._live:
            _redraw(text)
        else:
            message(text)

    def report(self, done: int, total: int) -> None:
        """How far the work is, when its size is learned on the way."""
        self.total = total
        self.update(done)

    def close(self) -> None:
        """The work is over, or failed: take the line away."""
        _redraw(None)
        self._next = math.inf


def _table(grid: formats.Grid | None) -> str:
    if grid is None:
        return ""
    if not terminal(sys.stdout):
        return formats.align(grid)
    if not formats.fits(grid, _width()):
        return formats.stack(grid)
    # Rich draws lines that other encodings lack.
    if _encoding(sys.stdout).lower().startswith("utf"):
        from .richtable import draw  # noqa: PLC0415 - takes 100 ms, and a pipe needs none of it

        return draw(grid, width=_width(), colour=colours())
    return formats.align(grid)


def _write(text: str) -> None:
    pour(text.encode(_encoding(sys.stdout), "backslashreplace"))


def _tell(label: str, colour: str, text: str) -> None:
    _redraw(None)
    # Further lines are indented, so that hostile text cannot pose as a message of ours.
    body = ("\n" + " " * len(label)).join(plain(line) for line in text.split("\n"))
    if label and _colourful(sys.stderr):
        label = f"\x1b[{colour}m{label.rstrip()}\x1b[0m "
    _write_error(f"{label}{body}\n")


def _redraw(text: str | None) -> None:
    """Put this progress line in the place of the last one; None takes it away."""
    global _line_shown
    if text is None and not _line_shown:
        return
    _line_shown = text is not None
    # A line that wraps could not be taken away again.
    _write_error("\r\x1b[K" + plain(text or "", _width() - 1))


def _write_error(text: str) -> None:
    if sys.stderr is None:
        return
    encoding = _encoding(sys.stderr)
    try:
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except OSError:
        # There is nobody left to tell; the work goes on.
        _abandon(sys.stderr)


def _abandon(stream: TextIO) -> None:
    """Let what the stream still holds go nowhere, else the interpreter complains about it at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


def _unread(stream: TextIO) -> bool:
    """Whether the other end of this stream was closed."""
    if sys.platform == "win32":
        return True  # cannot be asked there; it is the likely one
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return False


def _colourful(stream: TextIO | None) -> bool:
    return terminal(stream) and colours()


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def width() -> int | None:
    """Columns of the terminal that results go to, or as COLUMNS says; None if neither is known."""
    return _width() if terminal(sys.stdout) else _given_width()


def _given_width() -> int | None:
    given = os.environ.get("COLUMNS", "")
    return int(given) or None if given.isdecimal() else None


def _width() -> int:
    given = _given_width()
    if given:
        return given
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            return os.get_terminal_size(stream.fileno()).columns or 80
    return 80
