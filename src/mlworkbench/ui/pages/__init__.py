"""The pages, one file each. They show what the desk answers, and decide nothing."""

from __future__ import annotations

from pathlib import Path

from nicegui import ui

from ..desk import Desk
from . import compare, files, lost, project, projects, run, runs, targets, terminal

_PAGES = (projects, project, files, targets, terminal, runs, run, compare, lost)
_STATIC = Path(__file__).parents[1] / "static"
_LOOK = "".join(f'<link rel="stylesheet" href="/static/{one.name}">' for one in sorted(_STATIC.glob("*.css")))


def register(desk: Desk) -> None:
    """Under their addresses."""
    ui.add_head_html(_LOOK, shared=True)
    for page in _PAGES:
        page.register(desk)
