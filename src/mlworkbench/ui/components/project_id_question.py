"""Buttons that resolve a project ID shared with another folder, like the ``mlw submit`` prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from nicegui import ui

from ...config.project_id_folders import DuplicateProjectId
from ...errors import MlwError
from ..backend import Backend
from .error_notice import report_errors
from .operation_view import OperationDialog, Remedies


def same_id_remedies(backend: Backend, root: Path, resubmit: Callable[[], Awaitable[None]]) -> Remedies:
    """Return buttons for the error dialog. ``resubmit`` is called after the user has clicked one."""

    def draw(error: MlwError, dialog: OperationDialog) -> None:
        if error.code != DuplicateProjectId.code:
            return

        async def answer(verb: str) -> None:
            # Run in the context of the page: the button is deleted with the dialog.
            with dialog.client, report_errors():
                await backend.operations.run("project", verb, cwd=root)
                dialog.close()
                await resubmit()

        with ui.row().classes("mlw-dialog-buttons"):
            ui.button("Share ID and submit", on_click=lambda: answer("link"), color=None).props("flat no-caps")
            ui.button("Use a new ID and submit", on_click=lambda: answer("new-id")).props("no-caps unelevated")

    return draw
