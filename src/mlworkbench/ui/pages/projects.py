"""projects."""

from __future__ import annotations

from nicegui import ui

from ..desk import Desk
from ..parts.frame import frame


def register(desk: Desk) -> None:
    @ui.page("/")
    def projects() -> None:
        with frame(desk, "projects"):
            ui.label("projects")
