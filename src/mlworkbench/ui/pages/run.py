"""run."""

from __future__ import annotations

from nicegui import ui

from ..desk import Desk
from ..parts.frame import frame


def register(desk: Desk) -> None:
    @ui.page("/runs/{name}")
    def run(name: str) -> None:
        with frame(desk, "run"):
            ui.label("run")
