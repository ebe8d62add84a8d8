"""Where there is nothing yet: what would be here, and what to do next."""

from __future__ import annotations

from nicegui import ui


def empty(icon: str, title: str, words: str, command: str | None = None, *, top: bool = False) -> ui.column:
    """``command``: what would do it on the command line. ``top``: the page has nothing else, so this is its heading."""
    with ui.column().classes("mlw-empty") as column:
        ui.icon(icon).classes("mlw-empty-icon").props("aria-hidden=true")
        with ui.element("h1" if top else "div").classes("mlw-empty-title"):
            ui.label(title)
        ui.label(words)
        if command is not None:
            ui.label(command).classes("mlw-mono mlw-command")
    return column
