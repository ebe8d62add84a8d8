"""Two texts and where they differ."""

from __future__ import annotations

import difflib

from nicegui import ui

_MOST = 2000  # lines
_KINDS = {"+": "mlw-diff-new", "-": "mlw-diff-old", "@": "mlw-diff-place"}


def difference_lines(old: str, new: str) -> list[str]:
    """As ``diff -u`` has them."""
    made = difflib.unified_diff(old.split("\n"), new.split("\n"), "on disk", "in the editor", lineterm="", n=3)
    return [line for _, line in zip(range(_MOST), made, strict=False)]


def show_difference(title: str, old: str, new: str) -> None:
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-diff-card"):
        dialog.props('aria-label="Difference"')
        ui.label(title).classes("mlw-empty-title")
        with ui.element("div").classes("mlw-diff mlw-mono").props("tabindex=0 role=region aria-label=Difference"):
            lines = difference_lines(old, new)
            for line in lines:
                ui.label(line or " ").classes(_KINDS.get(line[:1], ""))
            if not lines:
                ui.label("They are the same.")
        ui.button("Close", on_click=dialog.close).props("flat no-caps")
    dialog.on("hide", dialog.delete)
    dialog.open()
