"""runs."""

from __future__ import annotations

from nicegui import ui

from ..desk import Desk
from ..parts.frame import frame


def register(desk: Desk) -> None:
    @ui.page("/runs")
    def runs() -> None:
        with frame(desk, "runs"):
            ui.label("runs")
