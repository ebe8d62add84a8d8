"""Banner above a file that reports a conflict with the version on disk and offers solutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from ...errors import MlwError, UsageError
from ...sanitize import plain

Choices = tuple[tuple[str, Callable[[], Any]], ...]


class FileBanner:
    """Banner above a file. ``message`` is empty while the banner is hidden."""

    def __init__(self) -> None:
        self.message = ""
        self._box = ui.element("div").classes("mlw-banner").props("role=alert")
        self._box.set_visibility(False)

    def show(self, message: str, choices: Choices) -> None:
        if self.message == message:
            return
        self.message = message
        self._box.clear()
        self._box.set_visibility(True)
        with self._box:
            ui.icon("warning").classes("mlw-warn").props("aria-hidden=true")
            ui.label(f"{message} Your changes are kept until you choose an option.")
            ui.space()
            for name, on_click in choices:
                ui.button(name, on_click=on_click).props("flat dense no-caps")

    def hide(self) -> None:
        self.message = ""
        self._box.clear()
        self._box.set_visibility(False)


def missing_file_message(path: str, why: str | MlwError | None) -> str:
    """Return the message for an edited file that is no longer a text file on disk.

    ``why`` describes what is on disk instead, or is the error that occurred while reading it.
    """
    if isinstance(why, UsageError):
        return f"{plain(why.message, 300)}."
    if isinstance(why, str):
        return f"{plain(path, 200)} can no longer be edited: {why}."
    return f"{plain(path, 200)} was deleted on disk."


async def confirm_discard(path: str) -> bool:
    with ui.dialog() as dialog, ui.card().classes("mlw-card"):
        dialog.props('aria-label="Discard"')
        ui.label(f"Discard unsaved changes to {plain(path, 200)}?")
        with ui.row():
            ui.button("Keep changes", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button("Discard", on_click=lambda: dialog.submit(True)).props("no-caps unelevated color=negative")
        dialog.on("hide", dialog.delete)
    return bool(await dialog)
