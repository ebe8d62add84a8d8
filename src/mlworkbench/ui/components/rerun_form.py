"""The form of a run that is submitted once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from ...errors import MlwError
from ...report.plain import plain
from ...report.units import counted
from ..answers import code, rerun
from ..desk import Desk
from .errand import watched
from .sameid import same_id_remedies
from .trouble import telling

_LONGEST = 4000


class RerunDialog:
    """Configuration, script, arguments and environment of the earlier run, to be changed or not."""

    def __init__(self, desk: Desk, given: rerun.Again) -> None:
        self._desk, self._given = desk, given
        spec = given.run.spec
        names = list(given.configurations)
        ui.label(plain(f"Project folder: {given.project.root}", 300)).classes("mlw-faint mlw-said")
        known = spec.runconfig if spec.runconfig in names else (names[0] if names else None)
        self._configuration = ui.select(names, label="Run configuration", value=known).props("outlined dense")
        self._configuration.classes("mlw-full")
        self._script = ui.input("Script", value=spec.entry.name, autocomplete=list(given.scripts))
        self._arguments = ui.input("Arguments", value=given.arguments)
        self._name = ui.input("Name (optional)")
        for field in (self._script, self._arguments, self._name):
            field.props(f"outlined dense maxlength={_LONGEST}").classes("mlw-full")
        self._arguments.classes("mlw-mono")
        self._locked = ui.checkbox(
            "Use the exact environment of the original run (--locked)", value=given.locked
        ).props("dense")
        self._locked.set_visibility(given.locked)
        if spec.sweep:
            ui.label("This is a sweep; all its runs are submitted again.").classes("mlw-faint")
        self._code = ui.label("Comparing code…").classes("mlw-faint").props("role=status")

    def _words(self) -> list[str]:
        request = rerun.request_again(
            self._given,
            configuration=str(self._configuration.value or ""),
            script=str(self._script.value or ""),
            arguments=str(self._arguments.value or ""),
            locked=bool(self._locked.value),
            name=str(self._name.value or ""),
        )
        return rerun.submit_words(request)

    async def look(self) -> None:
        """Whether the project's code is still that of the run."""
        spec = self._given.run.spec
        try:
            found = await self._desk.ask(code.since, spec.id)
        except MlwError as error:
            self._code.set_text(plain(error.message, 300))
            return
        if found.problem:
            self._code.set_text(found.problem)
            return
        files = counted(len(found.files), "file")
        self._code.set_text(
            f"The code has changed since this run ({files}). The new run uses the current code."
            if found.files
            else "The code has not changed since this run."
        )
        self._code.classes(remove="mlw-faint", add="mlw-warn" if found.files else "mlw-good")

    async def submit(self, close: Callable[[Any], None]) -> None:
        """Closes with the id of the new run."""
        with telling():
            words = self._words()
            root = self._given.project.root
            errand = await self._desk.errands.start(*words, cwd=root)
            remedies = same_id_remedies(self._desk, root, lambda: self.submit(close))
            await watched("Submit run", errand, remedies=remedies)
            if not errand.failed and isinstance(errand.answer, dict):
                close(errand.answer.get("run_id"))
