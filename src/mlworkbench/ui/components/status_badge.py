"""How a run stands, as a word with a colour and a sign: never by the colour alone."""

from __future__ import annotations

from nicegui import ui

SIGNS = {
    "Completed": ("check_circle", "good"),
    "Failed": ("error", "bad"),
    "Canceled": ("cancel", "idle"),
    "Running": ("play_circle", "busy"),
    "Submitting": ("hourglass_top", "busy"),
    "Preparing": ("build_circle", "busy"),
    "Queued": ("schedule", "idle"),
}


def status(word: str, more: str = "") -> ui.row:
    """``more``: the ending in few words."""
    icon, kind = SIGNS.get(word, ("help", "idle"))
    with ui.row().classes(f"mlw-status mlw-{kind}") as row:
        ui.icon(icon).props("aria-hidden=true")
        ui.label(f"{word} ({more})" if more else word)
    return row
