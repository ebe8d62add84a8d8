"""compare."""

from __future__ import annotations

from nicegui import ui

from ..desk import Desk
from ..parts.frame import frame


def register(desk: Desk) -> None:
    @ui.page("/compare")
    def compare() -> None:
        with frame(desk, "compare"):
            ui.label("compare")
