"""Output and result of a command that was started from the browser."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from nicegui import ui
from nicegui.element import Element

from ...errors import MlwError
from ...sanitize import plain
from ..backend import Backend
from ..operation_runner import Operation

_QUICK_SECONDS = 0.4  # seconds in which a command can finish without showing a dialog
_CLOSE_DELAY = 1.0  # seconds before the dialog closes after a success

# Called inside the dialog of a failed command, with its error and the dialog; may add buttons that fix the error.
Remedies = Callable[[MlwError, "OperationDialog"], None]


def no_remedies(error: MlwError, dialog: OperationDialog) -> None:
    """Add no buttons, so that only the hint is shown."""


class OperationView(Element, component="errand.js"):
    """Live output of an operation. The page requests the lines, so a reload shows them all again."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._props["name"] = operation.id
        self._props["label"] = f"Output of {format_command(operation)}"

    def omit_error(self) -> None:
        """Omit the error and hint from the output, because the dialog shows them."""
        self._props["below"] = True
        self.update()


def format_command(operation: Operation) -> str:
    """Return the command line as a user would type it."""
    arguments = list(operation.arguments)
    if "-o" in arguments:
        del arguments[arguments.index("-o") : arguments.index("-o") + 2]  # only the server needs the output format
    return plain(shlex.join(("mlw", *arguments)), 400)


async def run_operation(
    backend: Backend,
    title: str,
    *arguments: str,
    cwd: Path | None = None,
    secret: str | None = None,
    environment: Mapping[str, str] | None = None,
    notify: bool = True,
    remedies: Remedies = no_remedies,
) -> Operation:
    """Run a command, show its progress, and return the finished operation.

    Check ``operation.failed`` for the result. A command that finishes immediately shows only a
    notification. An error stays visible until the user dismisses it. Leaving the page or hiding the
    dialog does not stop the command. ``notify`` enables the notification of success.
    """
    operation = await backend.operations.start(*arguments, cwd=cwd, secret=secret, environment=environment)
    await watch_operation(title, operation, notify, remedies)
    return operation


async def watch_operation(
    title: str, operation: Operation, notify: bool = True, remedies: Remedies = no_remedies
) -> None:
    """Show the progress of an operation that is already running; see ``run_operation``."""
    client = ui.context.client
    if not await _finishes_within(operation, _QUICK_SECONDS) or operation.failed:
        with client:  # the clicked element may be deleted meanwhile
            dialog = OperationDialog(title, operation, remedies=remedies)
        dialog.open()
        await operation.done.wait()
        if not client.is_deleted and not dialog.is_deleted:
            await dialog.show_result()
    if notify and not operation.failed and not client.is_deleted:
        with client:
            ui.notify(f"{plain(title, 200)}: done", type="positive", position="bottom")


async def _finishes_within(operation: Operation, seconds: float) -> bool:
    try:
        await asyncio.wait_for(asyncio.shield(operation.done.wait()), seconds)
    except asyncio.TimeoutError:
        return False
    return True


class OperationDialog(ui.dialog):
    """Dialog with the title, output, and error of an operation, and remedies for the error."""

    def __init__(
        self,
        title: str,
        operation: Operation,
        *,
        keep_open: bool = False,
        on_hidden: Callable[[], None] = lambda: None,
        remedies: Remedies = no_remedies,
    ) -> None:
        """Create the dialog.

        With ``keep_open``, the dialog stays open after a success and detects the end of the operation by
        itself. ``on_hidden`` is called after the dialog has closed.
        """
        super().__init__()
        self._operation, self._keep_open, self._on_hidden, self._remedies = operation, keep_open, on_hidden, remedies
        self._props["aria-label"] = plain(title, 200)
        with self, ui.card().classes("mlw-card mlw-errand-card"):
            with ui.row().classes("mlw-errand-head"):
                self._spinner = ui.spinner(size="18px").props("aria-hidden=true")
                ui.label(plain(title, 200)).classes("mlw-errand-title")
            ui.label(format_command(operation)).classes("mlw-mono mlw-faint mlw-said")
            self._view = OperationView(operation)
            self._result_box = ui.column().classes("mlw-errand-end").props("role=status")
            with ui.row().classes("mlw-errand-buttons"):
                self._button = ui.button("Hide", on_click=self.close).props("flat no-caps")
                with self._button:
                    ui.tooltip("Continues in the background")
        if keep_open:
            self._view.on("ended", self.show_result)
        self.on("hide", self._handle_hide)

    def _handle_hide(self) -> None:
        self._on_hidden()
        self.delete()

    async def show_result(self) -> None:
        """Show the result. After a success, close the dialog unless ``keep_open`` was set."""
        self._spinner.set_visibility(False)
        self._button.clear()
        self._button.set_text("Close")
        error = self._operation.error()
        with self._result_box:
            if error is None:
                ui.label("Done").classes("mlw-good")
            else:
                self._view.omit_error()
                ui.label(plain(error.message, 2000)).classes("mlw-bad mlw-said")
                if error.hint:
                    ui.label(f"Hint: {plain(error.hint, 2000)}").classes("mlw-said")
                self._remedies(error, self)
        if error is None and not self._keep_open:
            await asyncio.sleep(_CLOSE_DELAY)
            self.close()
