"""Dialog that attaches a machine as a compute target, after the user confirms its host key."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from ...errors import MlwError
from ...sanitize import plain
from ..backend import Backend
from ..operation_arguments import Attach
from ..operation_runner import Operation
from ..queries.targets import Card, file_url
from .attach_form import PASSWORD, AttachForm
from .error_notice import notify_error
from .finding_list import findings_table
from .operation_view import OperationView
from .page_frame import ProjectScope
from .secret_cache import SecretCache

Callback = Callable[[], Awaitable[None]]
_FINGERPRINT_COMMAND = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"


class AttachDialog(ui.dialog):
    """Dialog with the form, the command output and questions, and the result. Calls ``on_attached`` on success."""

    def __init__(self, backend: Backend, scope: ProjectScope, on_attached: Callback, card: Card | None = None) -> None:
        super().__init__()
        self._backend, self._scope, self._on_attached = backend, scope, on_attached
        self._password = SecretCache()
        self._operation: Operation | None = None
        self._props["aria-label"] = "Attach a machine"
        self.props("persistent")
        with self, ui.card().classes("mlw-card mlw-attach"):
            with ui.element("h2").classes("mlw-box-title"):
                ui.label("Attach a machine")
            self._error_box = ui.column().classes("mlw-attach-trouble").props("role=alert")
            with ui.column().classes("mlw-attach-part") as self._form_box:
                self._form = AttachForm(card, self._attach)
                self._command = ui.label().classes("mlw-mono mlw-faint mlw-said")
                with ui.row().classes("mlw-errand-buttons"):
                    ui.button("Cancel", on_click=self._close).props("flat no-caps")
                    ui.button("Attach", icon="link", on_click=self._attach).props("unelevated no-caps")
            self._steps = ui.column().classes("mlw-attach-part")
        self._form.on_change(self._show_command)
        self._show_command()

    def _show_command(self) -> None:
        request = self._form.request()
        arguments = request.arguments(self._form.authentication == PASSWORD and request.address is not None)
        self._command.set_text(
            plain(shlex.join(["mlw", *(argument for argument in arguments if argument not in ("-o", "json"))]), 1000)
        )

    def _close(self) -> None:
        self._password.drop()
        self._operation = None
        self._form.clear_password()
        self.close()

    # -- attempts -------------------------------------------------------------------------------------------

    async def _attach(self) -> None:
        """Attach with the form values.

        This clears the password field. The server keeps the password between two attempts.
        """
        self._password.keep(await self._form.password())
        missing = self._form.missing_value(self._password.value is not None)
        if missing:
            self._password.drop()
            self._show_form(MlwError(missing))
            return
        await self._attempt(None)

    async def _attempt(self, host_key: str | None) -> None:
        password, request = self._password.value, self._form.request(host_key)
        if password is None and self._form.authentication == PASSWORD and request.address:
            self._show_form(MlwError("The password expired after two minutes", "enter it again"))
            return
        title = f"Attach {request.name}"
        arguments, root = request.arguments(password is not None), self._scope.project.root
        operation = self._operation = await self._backend.operations.start(*arguments, cwd=root, secret=password)
        self._backend.operations.set_title(self._scope.key, title, operation)
        self._show_lines(operation)
        await operation.done.wait()
        if self.client.is_deleted:
            self._password.drop()
        elif self._operation is operation:
            await self._handle_result(operation, request)
        else:
            await self._notify_result(operation, request)

    async def _notify_result(self, operation: Operation, request: Attach) -> None:
        """Notify the user of the result if the dialog has been hidden."""
        error = operation.error()
        if error is not None:
            notify_error(error)
            return
        ui.notify(f"{plain(request.name, 200)} is attached", type="positive")
        await self._on_attached()

    async def _handle_result(self, operation: Operation, request: Attach) -> None:
        error = operation.error()
        result: Mapping[str, Any] = operation.result if isinstance(operation.result, dict) else {}
        if error is None:
            self._password.drop()
            self._show_result(request, result)
            await self._on_attached()
        elif result.get("asks") == "host_key":
            self._ask_about_key(result)
        elif result.get("asks") == "public_key":
            self._ask_to_append(request, result)
        else:
            self._password.drop()
            self._show_form(error)

    # -- display --------------------------------------------------------------------------------------------

    def _show_form(self, error: MlwError | None) -> None:
        """Return to the form and show the error."""
        self._steps.clear()
        self._form_box.set_visibility(True)
        self._error_box.clear()
        if error is not None:
            with self._error_box:
                ui.label(plain(error.message, 2000)).classes("mlw-bad mlw-said")
                if error.hint:
                    ui.label(plain(error.hint, 2000)).classes("mlw-said")

    def _clear_steps(self) -> ui.column:
        self._error_box.clear()
        self._form_box.set_visibility(False)
        self._steps.clear()
        return self._steps

    def _show_lines(self, operation: Operation) -> None:
        with self._clear_steps():
            with ui.row().classes("mlw-errand-head"):
                ui.spinner(size="18px").props("aria-hidden=true")
                ui.label("Connecting and checking the machine…")
            OperationView(operation)
            with ui.row().classes("mlw-errand-buttons"):
                ui.button("Hide", on_click=self._close).props("flat no-caps")

    def _ask_about_key(self, result: Mapping[str, Any]) -> None:
        fingerprint, identity = str(result.get("host_key")), str(result.get("identity"))
        with self._clear_steps():
            ui.label(f"First connection to {plain(identity, 300)}; its host key is:")
            ui.label(plain(fingerprint, 200)).classes("mlw-mono mlw-fingerprint")
            ui.label(f"({plain(str(result.get('kind')), 60)})").classes("mlw-faint")
            ui.label("To verify it, run this command on the machine and compare the output:")
            ui.label(_FINGERPRINT_COMMAND).classes("mlw-mono mlw-command")
            ui.label("No secrets have been sent yet. The password is kept in memory for two minutes.").classes(
                "mlw-faint"
            )
            with ui.row().classes("mlw-errand-buttons"):
                ui.button("Reject key", on_click=self._reject_key).props("flat no-caps")
                ui.button("Trust key", icon="verified_user", on_click=lambda: self._attempt(fingerprint)).props(
                    "unelevated no-caps"
                )

    def _reject_key(self) -> None:
        self._password.drop()
        message = "Not attached: host key rejected"
        self._show_form(MlwError(message, f"to print the host key, run this on the machine: {_FINGERPRINT_COMMAND}"))

    def _ask_to_append(self, request: Attach, result: Mapping[str, Any]) -> None:
        line = str(result.get("line"))
        with self._clear_steps():
            ui.label(f"Append this line to ~/.ssh/authorized_keys on {plain(str(result.get('identity')), 300)}:")
            ui.label(plain(line, 4000)).classes("mlw-mono mlw-command mlw-said mlw-public-key")
            with ui.row().classes("mlw-errand-buttons"):
                ui.button("Cancel", on_click=self._close).props("flat no-caps")
                ui.button("Copy", icon="content_copy", on_click=lambda: ui.clipboard.write(line)).props("flat no-caps")
                ui.button("Continue", icon="arrow_forward", on_click=lambda: self._attempt(request.host_key)).props(
                    "unelevated no-caps"
                )

    def _show_result(self, request: Attach, result: Mapping[str, Any]) -> None:
        with self._clear_steps():
            with ui.row().classes("mlw-status mlw-good").props("role=status"):
                ui.icon("check_circle").props("aria-hidden=true")
                ui.label(f"{plain(request.name, 200)} is attached: {plain(str(result.get('identity')), 300)}")
            if result.get("key"):
                ui.label(f"Authentication: {plain(str(result['key']), 300)}").classes("mlw-faint")
                ui.label(plain(str(result.get("host_key")), 200)).classes("mlw-mono mlw-faint")
            if result.get("findings"):
                findings_table(result["findings"])
            written = [str(path) for path in result.get("written") or ()]
            ui.label("Created files:" if written else "Files:")
            for path in written or [f"{self._scope.project.folder}/{request.name}{suffix}" for suffix in _SUFFIXES]:
                self._link(path)
            with ui.row().classes("mlw-errand-buttons"):
                ui.button("Done", on_click=self._close).props("unelevated no-caps")

    def _link(self, path: str) -> None:
        name = os.path.relpath(path, self._scope.project.root)
        ui.link(plain(name, 300), file_url(self._scope.key, name)).classes("mlw-mono")


_SUFFIXES = (".compute", ".runconfig")
