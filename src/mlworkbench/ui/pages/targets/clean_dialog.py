"""Dialog that shows the size of removable files on a machine and deletes them on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from ....errors import MlwError
from ....report import units
from ....sanitize import plain
from ... import operation_arguments
from ...backend import Backend
from ...components.error_notice import describe_error
from ...components.page_frame import ProjectScope
from .target_dialogs import TargetDialog


class CleanDialog(TargetDialog):
    """Dialog that shows sizes before deleting files. If ``target`` is None, it cleans this machine."""

    def __init__(self, backend: Backend, scope: ProjectScope, target: str | None) -> None:
        super().__init__(f"Clean {target or 'this machine'}")
        self._backend, self._scope, self._target = backend, scope, target
        with self.buttons:
            self._remove = ui.button("Delete", icon="delete", on_click=self._clean)
            self._remove.props("unelevated no-caps color=negative").set_visibility(False)

    async def load(self) -> None:
        self.open()
        rows = await self._run(remove=False)
        if rows is None:
            return
        total = sum(_removable_bytes(row) for row in rows)
        with self.body:
            _table(rows, "Removable")
            _show_kept(rows)
            ui.label(f"{units.size(total)} can be deleted" if total else "Nothing to delete").props("role=status")
            local_note = "Runs, outputs, and assets are always kept."
            remote_note = "Only finished runs whose log and outputs were fetched are deleted."
            ui.label(local_note if self._target is None else remote_note).classes("mlw-faint")
        self._remove.set_visibility(total > 0)

    async def _clean(self) -> None:
        self._remove.set_visibility(False)
        rows = await self._run(remove=True)
        if rows is not None:
            total = sum(int(row.get("bytes") or 0) for row in rows)
            with self.body:
                _table(rows, "Removed")
                _show_kept(rows)
                ui.label(f"{units.size(total)} deleted").classes("mlw-good").props("role=status")

    async def _run(self, remove: bool) -> Sequence[Mapping[str, Any]] | None:
        """Run the command and return its rows, or show the error and return None if it fails."""
        arguments = operation_arguments.clean_arguments(self._target, remove=remove)
        self.body.clear()
        with self.body:
            command = ["mlw", *(argument for argument in arguments if argument not in ("-o", "json", "--dry-run"))]
            ui.label(plain(" ".join(command), 400)).classes("mlw-mono mlw-faint")
            with ui.row().classes("mlw-errand-head") as waiting:
                ui.spinner(size="18px").props("aria-hidden=true")
                ui.label("Deleting…" if remove else "Calculating sizes…").props("role=status")
        try:
            rows = await self._backend.operations.run(*arguments, cwd=self._scope.project.root)
        except MlwError as error:
            message, hint = describe_error(error)
            with self.body:
                ui.label(message).classes("mlw-bad mlw-said").props("role=status")
                ui.label(hint or "").classes("mlw-said")
            rows = None
        if not self.is_deleted:
            waiting.delete()
        return rows if isinstance(rows, list) else None


def _show_kept(rows: Sequence[Mapping[str, Any]]) -> None:
    """Show what is kept, and why."""
    for row in rows:
        for kept in row.get("kept") or ():
            size = units.size(int(kept.get("bytes") or 0))
            ui.label(plain(f"Kept: {row.get('kind')}, {size}: {kept.get('reason')}", 400)).classes("mlw-faint")


def _removable_bytes(row: Mapping[str, Any]) -> int:
    """Return the number of removable bytes. For this machine, the rows contain only removable files."""
    return int(row.get("can_go_bytes", row.get("bytes")) or 0)


def _table(rows: Sequence[Mapping[str, Any]], last: str) -> None:
    """Draw the table. ``last`` is the title of the last column."""
    shown = [row for row in rows if row.get("things")]
    if not shown:
        return
    is_remote = any("can_go_bytes" in row for row in shown)
    columns = ["Kind", "Items", *(["Size", last] if is_remote else [last])]
    with ui.element("table").classes("mlw-plain-table"):
        with ui.element("thead"), ui.element("tr"):
            for name in columns:
                with ui.element("th").props("scope=col"):
                    ui.label(name)
        with ui.element("tbody"):
            for row in shown:
                with ui.element("tr"):
                    for text in _cells(row, is_remote):
                        with ui.element("td"):
                            ui.label(text)


def _cells(row: Mapping[str, Any], is_remote: bool) -> list[str]:
    first = [plain(str(row.get("kind")), 100), str(row.get("things"))]
    size = units.size(int(row.get("bytes") or 0))
    return [*first, size, units.size(_removable_bytes(row))] if is_remote else [*first, size]
