"""Two texts and where they differ."""

from __future__ import annotations

from nicegui import ui

from ...report.linediff import LineDiff
from ..desk import Desk
from .sheet import DiffLines

_MOST = 2000  # lines


def difference_lines(old: str, new: str) -> list[str]:
    """As ``diff -u`` prints them; call it in a worker thread."""
    found = LineDiff(_MOST).unified(old.split("\n"), new.split("\n"), "on disk", "in the editor")
    return ["(too many different lines to display)"] if found is None else found[:_MOST]


async def show_difference(desk: Desk, title: str, old: str, new: str) -> None:
    lines = await desk.ask(lambda _: difference_lines(old, new))
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
