"""Above a file: what has happened to it on disk, and what can be chosen now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from ...errors import MlwError, UsageError
from ...report.plain import plain

Choices = tuple[tuple[str, Callable[[], Any]], ...]


class Banner:
    """``words`` is "" while there is nothing to choose."""

    def __init__(self) -> None:
        self.words = ""
        self._box = ui.element("div").classes("mlw-banner").props("role=alert")
        self._box.set_visibility(False)

    def ask(self, words: str, choices: Choices) -> None:
        if self.words == words:
            return
        self.words = words
        self._box.clear()
        self._box.set_visibility(True)
        with self._box:
            ui.icon("warning").classes("mlw-warn").props("aria-hidden=true")
            ui.label(f"{words} Your changes are kept until you choose an option.")
            ui.space()
            for name, chosen in choices:
                ui.button(name, on_click=chosen).props("flat dense no-caps")

    def hide(self) -> None:
        self.words = ""
        self._box.clear()
        self._box.set_visibility(False)


def lost_words(path: str, why: str | MlwError | None) -> str:
    """Of a file that was edited and has no text on disk any more. ``why``: what stands there instead."""
    if isinstance(why, UsageError):
        return f"{plain(why.message, 300)}."
    if isinstance(why, str):
        return f"{plain(path, 200)} can no longer be edited: {why}."
    return f"{plain(path, 200)} was deleted on disk."


async def ask_discard(path: str) -> bool:
    with ui.dialog() as dialog, ui.card().classes("mlw-card"):
        dialog.props('aria-label="Discard"')
        ui.label(f"Discard unsaved changes to {plain(path, 200)}?")
        with ui.row():
            ui.button("Keep changes", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button("Discard", on_click=lambda: dialog.submit(True)).props("no-caps unelevated color=negative")
        dialog.on("hide", dialog.delete)
    return bool(await dialog)
