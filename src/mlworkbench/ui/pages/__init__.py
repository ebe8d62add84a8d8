"""The pages, one file each. They show what the verbs answer, and decide nothing."""

from __future__ import annotations

from nicegui import ui

from ...config.project import Project


def register(project: Project | None) -> None:
    """Under their addresses."""

    @ui.page("/")
    def home() -> None:
        ui.label("ML Workbench")
