"""The question of ``mlw submit`` about a project ID that another folder has, as buttons below its error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from nicegui import ui

from ...config.project_roots import SameId
from ...errors import MlwError
from ..desk import Desk
from .errand import ErrandDialog, Remedies
from .trouble import telling


def same_id_remedies(desk: Desk, root: Path, again: Callable[[], Awaitable[None]]) -> Remedies:
    """``again`` submits once more after the answer."""

    def draw(error: MlwError, dialog: ErrandDialog) -> None:
        if error.code != SameId.code:
            return

        async def answer(verb: str) -> None:
            # The page, not this button: the dialog is deleted as soon as the browser has closed it.
            with dialog.client, telling():
                await desk.errands.do("project", verb, cwd=root)
                dialog.close()
                await again()

        with ui.row().classes("mlw-dialog-buttons"):
            ui.button("Share ID and submit", on_click=lambda: answer("link"), color=None).props("flat no-caps")
            ui.button("Use a new ID and submit", on_click=lambda: answer("new-id")).props("no-caps unelevated")

    return draw
