"""List of problems in a file or a project, with line numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from ...model import Problem
from ...sanitize import plain

_ICONS = {"error": ("error", "mlw-bad"), "warning": ("warning", "mlw-warn")}


def problem_list(problems: list[Problem], on_click: Callable[[Problem], Any], *, with_file: bool = False) -> None:
    """Show the problems. ``on_click`` is called with a problem when its location is clicked."""
    with ui.element("ul").classes("mlw-problems"):
        for problem in problems:
            icon, color = _ICONS.get(problem.severity, ("info", "mlw-idle"))
            with ui.element("li").classes("mlw-problem"):
                ui.icon(icon).classes(color).props("aria-hidden=true")
                location = f"{plain(problem.path, 80)}:{problem.line}" if problem.line else plain(problem.path, 80)
                label = location if with_file else f"line {problem.line}" if problem.line else ""
                if label:
                    button = ui.button(label, on_click=lambda problem=problem: on_click(problem))
                    button.props("flat dense no-caps").classes("mlw-problem-place mlw-mono")
                message = f"{problem.severity}: {plain(problem.message, 500)}"
                ui.label(f"{message} — {plain(problem.hint, 300)}" if problem.hint else message).classes("mlw-said")
