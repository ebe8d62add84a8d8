"""Two texts and where they differ."""

from __future__ import annotations

import difflib

from nicegui import ui

from .sheet import DiffLines

_MOST = 2000  # lines


def difference_lines(old: str, new: str) -> list[str]:
    """As ``diff -u`` has them."""
    made = difflib.unified_diff(old.split("\n"), new.split("\n"), "on disk", "in the editor", lineterm="", n=3)
    return [line for _, line in zip(range(_MOST), made, strict=False)]


def show_difference(title: str, old: str, new: str) -> None:
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-diff-card"):
        dialog.props('aria-label="Difference"')
        ui.label(title).classes("mlw-empty-title")
        lines = difference_lines(old, new)
        if lines:
            DiffLines("Difference", lines)
        else:
            ui.label("They are the same.")
        ui.button("Close", on_click=dialog.close).props("flat no-caps")
    dialog.on("hide", dialog.delete)
    dialog.open()
