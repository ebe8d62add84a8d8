"""The pages, one file each. They show what the desk answers, and decide nothing."""

from __future__ import annotations

from ..desk import Desk
from . import compare, files, lost, project, projects, run, runs, targets, terminal

_PAGES = (projects, project, files, targets, terminal, runs, run, compare, lost)


def register(desk: Desk) -> None:
    """Under their addresses."""
    for page in _PAGES:
        page.register(desk)
