"""The command prompt of a project."""

from __future__ import annotations

from nicegui import ui

from ..desk import Desk
from ..parts.frame import frame


def register(desk: Desk) -> None:
    @ui.page("/p/{key}/terminal")
    def terminal(key: str) -> None:
        with frame(desk, "Terminal"):
            ui.label("terminal")
