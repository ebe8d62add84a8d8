"""Status of a run as text with color and icon. The color is never the only cue."""

from __future__ import annotations

from nicegui import ui

STATUS_ICONS = {
    "Completed": ("check_circle", "good"),
    "Failed": ("error", "bad"),
    "Canceled": ("cancel", "idle"),
    "Running": ("play_circle", "busy"),
    "Submitting": ("hourglass_top", "busy"),
    "Preparing": ("build_circle", "busy"),
    "Queued": ("schedule", "idle"),
}


def status_badge(status: str, reason: str = "") -> ui.row:
    """Draw the status. ``reason`` describes why the run ended."""
    icon, kind = STATUS_ICONS.get(status, ("help", "idle"))
    with ui.row().classes(f"mlw-status mlw-{kind}") as row:
        ui.icon(icon).props("aria-hidden=true")
        ui.label(f"{status} ({reason})" if reason else status)
    return row
