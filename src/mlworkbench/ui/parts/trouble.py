"""What went wrong, told to whoever clicked: one sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from ...errors import MlwError
from ...report.plain import plain


def tell(error: MlwError) -> None:
    """Stays until it is closed: people look away."""
    words = plain(error.message, 1000) + (f"\n{plain(error.hint, 1000)}" if error.hint else "")
    ui.notification(words, type="negative", multi_line=True, close_button="Close", timeout=None, position="top")


@contextmanager
def telling() -> Iterator[None]:
    """Around what a click sets off: ``with telling(): await desk.errands.do(…)``."""
    try:
        yield
    except MlwError as error:
        tell(error)
