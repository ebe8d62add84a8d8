"""project."""

from __future__ import annotations

from nicegui import ui

from ..desk import Desk
from ..parts.frame import frame


def register(desk: Desk) -> None:
    @ui.page("/p/{key}")
    def project(key: str) -> None:
        with frame(desk, "project"):
            ui.label("project")
