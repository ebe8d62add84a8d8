"""The interface between a submission and its caller: messages, progress, and prompts."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from ..report import units
from ..sanitize import plain

if TYPE_CHECKING:
    from types import TracebackType

    from ..model import Run
    from ..submission import Draft

_FIRST, _REPEAT = 0.5, 10.0  # seconds before the first progress line, and between later ones

Write = Callable[[str], None]


class ProgressBar(Protocol):
    """Receiver of the number of completed and total bytes."""

    def report(self, done: int, total: int) -> None: ...


class Frontend:
    """Frontend that writes plain lines to a function and never prompts; the CLI has a subclass."""

    prompts = False  # whether the user may be prompted for a missing secret

    def __init__(self, write: Write | None = None) -> None:
        self._write = write or (lambda line: None)

    def message(self, text: str) -> None:
        """Report information that is not the result."""
        for line in text.split("\n"):
            self._write(plain(line))

    def warning(self, text: str) -> None:
        """Report a problem that does not stop the operation."""
        self.message(f"warning: {text}")

    def progress(self, label: str, least: float = 0) -> AbstractContextManager[ProgressBar]:
        """Show the progress of a long step, unless its total is below ``least``."""
        return _TextProgress(label, self.message, least)

    def planned(self, draft: Draft) -> None:
        """Report warnings and notes about a run that is planned but not yet recorded."""
        for note in (*map(str, draft.warnings), *draft.parts.snapshot.notes):
            self.warning(note)
        for note in draft.parts.passed.notes:
            self.message(f"note: {note}")
        if draft.parts.snapshot.left_out:
            self.message(f"note: {draft.parts.snapshot.left_out}")

    def detached(self, run: Run) -> None:
        """Handle an interruption of submitting or following a run. The run is not affected."""


class _TextProgress:
    """Progress display that writes a line every few seconds: ``upload  412 MB of 1.0 GB``."""

    def __init__(self, label: str, write: Write, least: float) -> None:
        self._label = label
        self._write = write
        self._least = least
        self._next = time.monotonic() + _FIRST

    def __enter__(self) -> _TextProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is nothing to clean up."""

    def report(self, done: int, total: int) -> None:
        if time.monotonic() < self._next or total < self._least:
            return
        self._next = time.monotonic() + _REPEAT
        self._write(f"{self._label}  {units.size(done)} of {units.size(total)}")
