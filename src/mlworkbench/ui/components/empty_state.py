"""Placeholder for an empty list or page, with a suggested next step."""

from __future__ import annotations

from nicegui import ui


def empty_state(icon: str, title: str, text: str, command: str | None = None, *, top: bool = False) -> ui.column:
    """Show the placeholder.

    ``command`` is the equivalent command. With ``top``, the title becomes the page heading.
    """
    with ui.column().classes("mlw-empty") as column:
        ui.icon(icon).classes("mlw-empty-icon").props("aria-hidden=true")
        with ui.element("h1" if top else "div").classes("mlw-empty-title"):
            ui.label(title)
        ui.label(text)
        if command is not None:
            ui.label(command).classes("mlw-mono mlw-command")
    return column
