"""Form to rerun a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from ...errors import MlwError
from ...report.units import pluralize
from ...sanitize import plain
from ..backend import Backend
from ..queries import code, dialog_data
from .error_notice import report_errors
from .operation_view import watch_operation
from .project_id_question import same_id_remedies

_MAX_LENGTH = 4000


class RerunForm:
    """Form with the run configuration, script, arguments, and environment of the original run.

    All of them can be changed.
    """

    def __init__(self, backend: Backend, original: dialog_data.PreviousRun) -> None:
        self._backend, self._original = backend, original
        spec = original.run.spec
        names = list(original.configurations)
        ui.label(plain(f"Project folder: {original.project.root}", 300)).classes("mlw-faint mlw-said")
        selected = spec.runconfig if spec.runconfig in names else (names[0] if names else None)
        self._configuration = ui.select(names, label="Run configuration", value=selected).props("outlined dense")
        self._configuration.classes("mlw-full")
        self._script = ui.input("Script", value=spec.entry.name, autocomplete=list(original.scripts))
        self._arguments = ui.input("Arguments", value=original.arguments)
        self._name = ui.input("Name (optional)")
        for field in (self._script, self._arguments, self._name):
            field.props(f"outlined dense maxlength={_MAX_LENGTH}").classes("mlw-full")
        self._arguments.classes("mlw-mono")
        self._locked = ui.checkbox(
            "Use the exact environment of the original run (--locked)", value=original.locked
        ).props("dense")
        self._locked.set_visibility(original.locked)
        if spec.sweep:
            ui.label("This is a sweep; all its runs are submitted again.").classes("mlw-faint")
        self._code = ui.label("Comparing code…").classes("mlw-faint").props("role=status")

    def _command(self) -> list[str]:
        request = dialog_data.rerun_request(
            self._original,
            configuration=str(self._configuration.value or ""),
            script=str(self._script.value or ""),
            arguments=str(self._arguments.value or ""),
            locked=bool(self._locked.value),
            name=str(self._name.value or ""),
        )
        return dialog_data.submit_words(request)

    async def compare_code(self) -> None:
        """Show whether the project's code has changed since the run."""
        spec = self._original.run.spec
        try:
            changes = await self._backend.call(code.project_difference, spec.id)
        except MlwError as error:
            self._code.set_text(plain(error.message, 300))
            return
        if changes.problem:
            self._code.set_text(changes.problem)
            return
        files = pluralize(len(changes.files), "file")
        self._code.set_text(
            f"The code has changed since this run ({files}). The new run uses the current code."
            if changes.files
            else "The code has not changed since this run."
        )
        self._code.classes(remove="mlw-faint", add="mlw-warn" if changes.files else "mlw-good")

    async def submit(self, close: Callable[[Any], None]) -> None:
        """Submit the run, and close the dialog with the new run's ID."""
        with report_errors():
            arguments = self._command()
            root = self._original.project.root
            operation = await self._backend.operations.start(*arguments, cwd=root)
            remedies = same_id_remedies(self._backend, root, lambda: self.submit(close))
            await watch_operation("Submit run", operation, remedies=remedies)
            if not operation.failed and isinstance(operation.result, dict):
                close(operation.result.get("run_id"))
