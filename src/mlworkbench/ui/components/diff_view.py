"""Dialog that shows the difference between two texts."""

from __future__ import annotations

from nicegui import ui

from ...report.line_diff import LineDiff
from ..backend import Backend
from .text_table import DiffLines

_MAX_LINES = 2000  # maximum number of lines in a diff


def difference_lines(old: str, new: str) -> list[str]:
    """Return a unified diff. Call this in a worker thread."""
    diff = LineDiff(_MAX_LINES).unified(old.split("\n"), new.split("\n"), "on disk", "in the editor")
    return ["(too many different lines to display)"] if diff is None else diff[:_MAX_LINES]


async def show_difference(backend: Backend, title: str, old: str, new: str) -> None:
    lines = await backend.call(lambda _: difference_lines(old, new))
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-diff-card"):
        dialog.props('aria-label="Difference"')
        ui.label(title).classes("mlw-empty-title")
        if lines:
            DiffLines("Difference", lines)
        else:
            ui.label("No differences.")
        ui.button("Close", on_click=dialog.close).props("flat no-caps")
    dialog.on("hide", dialog.delete)
    dialog.open()
