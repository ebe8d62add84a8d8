"""Where there is nothing yet: what would be here, and what to do next."""

from __future__ import annotations

from nicegui import ui


def empty(icon: str, title: str, words: str, command: str | None = None) -> ui.column:
    """``command``: what would do it on the command line."""
    with ui.column().classes("mlw-empty") as column:
        ui.icon(icon).classes("mlw-empty-icon").props("aria-hidden=true")
        ui.label(title).classes("mlw-empty-title")
        ui.label(words)
        if command is not None:
            ui.label(command).classes("mlw-mono mlw-command")
    return column
