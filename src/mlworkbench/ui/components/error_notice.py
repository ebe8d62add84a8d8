"""Notifications that show an error and a hint."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from ...errors import MlwError, details_of
from ...sanitize import plain

log = logging.getLogger("mlworkbench.ui")


def describe_error(error: Exception) -> tuple[str, str | None]:
    """Return an error's message and hint.

    An internal error is logged under an ID, which the message includes.
    """
    if isinstance(error, MlwError):
        more = details_of(error.more) if error.more else None
        hint = "; ".join(plain(text, 1000) for text in (error.hint, more) if text)
        return plain(error.message, 1000), hint or None
    error_id = secrets.token_hex(4)
    log.error("error %s", error_id, exc_info=error)
    return f"Internal error {error_id}. See the log of mlw ui for details.", None


def notify_error(error: Exception) -> None:
    """Show an error until the user dismisses it. Quasar counts repeats instead of stacking them."""
    message, hint = describe_error(error)
    ui.notify(
        message,
        position="bottom",  # keep the controls at the top of the page usable
        timeout=0,
        icon="error",
        classes="mlw-trouble",
        attrs={"role": "alert"},
        actions=[{"label": "Close", "noCaps": True, "flat": True, "dense": True, "class": "mlw-trouble-close"}],
        caption=f"Hint: {hint}" if hint else "",
    )


@contextmanager
def report_errors() -> Iterator[None]:
    """Show errors as notifications: ``with report_errors(): await backend.operations.run(…)``."""
    try:
        yield
    except MlwError as error:
        notify_error(error)
