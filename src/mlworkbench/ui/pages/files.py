"""files."""

from __future__ import annotations

from nicegui import ui

from ..desk import Desk
from ..parts.frame import frame


def register(desk: Desk) -> None:
    @ui.page("/p/{key}/files")
    def files(key: str) -> None:
        with frame(desk, "files"):
            ui.label("files")
