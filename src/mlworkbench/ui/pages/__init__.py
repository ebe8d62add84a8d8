"""The pages, one file each. They show what the desk answers, and decide nothing."""

from __future__ import annotations

from nicegui import ui

from ..desk import Desk
from . import compare, files, project, projects, run, runs, targets, terminal

_PAGES = (projects, project, files, targets, terminal, runs, run, compare)
_LOOK = '<link rel="stylesheet" href="/static/mlw.css">'


def register(desk: Desk) -> None:
    """Under their addresses."""
    ui.add_head_html(_LOOK, shared=True)
    for page in _PAGES:
        page.register(desk)
