"""The jobs pane: what runs now, whoever started it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from ..desk import Desk

if TYPE_CHECKING:
    from .frame import Here


def jobs(desk: Desk, where: Here | None) -> None:
    ui.label("Jobs")
