"""What went wrong, told to whoever clicked: one sentence, and what to do about it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from ...errors import MlwError, details_of
from ...report.plain import plain

log = logging.getLogger("mlworkbench.ui")


def in_words(error: Exception) -> tuple[str, str | None]:
    """What happened and what to do, for people. A fault of ours has a number under which the log tells more."""
    if isinstance(error, MlwError):
        more = details_of(error.more) if error.more else None
        remedy = "; ".join(plain(one, 1000) for one in (error.hint, more) if one)
        return plain(error.message, 1000), remedy or None
    name = secrets.token_hex(4)
    log.error("error %s", name, exc_info=error)
    return f"Internal error {name}. See the log of mlw ui for details.", None


def tell(error: Exception) -> None:
    """Stays until it is closed: people look away. The same once more is counted beside the first, not stacked."""
    words, remedy = in_words(error)
    ui.notify(
        words,
        position="bottom",  # the head of a page has what is clicked next
        timeout=0,
        icon="error",
        classes="mlw-trouble",
        attrs={"role": "alert"},
        actions=[{"label": "Close", "noCaps": True, "flat": True, "dense": True, "class": "mlw-trouble-close"}],
        caption=f"Hint: {remedy}" if remedy else "",
    )


@contextmanager
def telling() -> Iterator[None]:
    """Around what a click sets off: ``with telling(): await desk.errands.do(…)``."""
    try:
        yield
    except MlwError as error:
        tell(error)
