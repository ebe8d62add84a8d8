"""What is wrong in a file or a project, line by line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from ...model import Problem
from ...report.plain import plain

_SIGNS = {"error": ("error", "mlw-bad"), "warning": ("warning", "mlw-warn")}


def problem_list(problems: list[Problem], go: Callable[[Problem], Any], *, with_file: bool = False) -> None:
    """``go``: what a click on one of them does."""
    with ui.element("ul").classes("mlw-problems"):
        for one in problems:
            icon, colour = _SIGNS.get(one.severity, ("info", "mlw-idle"))
            with ui.element("li").classes("mlw-problem"):
                ui.icon(icon).classes(colour).props("aria-hidden=true")
                place = f"{plain(one.path, 80)}:{one.line}" if one.line else plain(one.path, 80)
                shown = place if with_file else f"line {one.line}" if one.line else ""
                if shown:
                    button = ui.button(shown, on_click=lambda one=one: go(one))
                    button.props("flat dense no-caps").classes("mlw-problem-place mlw-mono")
                said = f"{one.severity}: {plain(one.message, 500)}"
                ui.label(f"{said} — {plain(one.hint, 300)}" if one.hint else said).classes("mlw-said")
