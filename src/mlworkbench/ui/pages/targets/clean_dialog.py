"""What can go from a machine, with its sizes; and then removing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from ....errors import MlwError
from ....report import units
from ....report.plain import plain
from ...answers import words
from ...desk import Desk
from ...parts.frame import Here
from ...parts.trouble import in_words
from .dialogs import Box


class CleanDialog(Box):
    """First only shows. ``target``: None is this machine."""

    def __init__(self, desk: Desk, where: Here, target: str | None) -> None:
        super().__init__(f"Clean {target or 'this machine'}")
        self._desk, self._where, self._target = desk, where, target
        with self.buttons:
            self._remove = ui.button("Delete", icon="delete", on_click=self._clean)
            self._remove.props("unelevated no-caps color=negative").set_visibility(False)

    async def look(self) -> None:
        self.open()
        rows = await self._do(remove=False)
        if rows is None:
            return
        total = sum(_free(row) for row in rows)
        with self.body:
            _table(rows, "Removable")
            _tell_kept(rows)
            ui.label(f"{units.size(total)} can be deleted" if total else "Nothing to delete").props("role=status")
            here = "Runs, outputs, and assets are always kept."
            there = "Only finished runs whose log and outputs were fetched are deleted."
            ui.label(here if self._target is None else there).classes("mlw-faint")
        self._remove.set_visibility(total > 0)

    async def _clean(self) -> None:
        self._remove.set_visibility(False)
        rows = await self._do(remove=True)
        if rows is not None:
            total = sum(int(row.get("bytes") or 0) for row in rows)
            with self.body:
                _table(rows, "Removed")
                _tell_kept(rows)
                ui.label(f"{units.size(total)} deleted").classes("mlw-good").props("role=status")

    async def _do(self, remove: bool) -> Sequence[Mapping[str, Any]] | None:
        """What the command answers; what went wrong is shown."""
        said = words.clean_words(self._target, remove=remove)
        self.body.clear()
        with self.body:
            command = ["mlw", *(one for one in said if one not in ("-o", "json", "--dry-run"))]
            ui.label(plain(" ".join(command), 400)).classes("mlw-mono mlw-faint")
            with ui.row().classes("mlw-errand-head") as waiting:
                ui.spinner(size="18px").props("aria-hidden=true")
                ui.label("Deleting…" if remove else "Calculating sizes…").props("role=status")
        try:
            found = await self._desk.errands.do(*said, cwd=self._where.project.root)
        except MlwError as error:
            message, hint = in_words(error)
            with self.body:
                ui.label(message).classes("mlw-bad mlw-said").props("role=status")
                ui.label(hint or "").classes("mlw-said")
            found = None
        if not self.is_deleted:
            waiting.delete()
        return found if isinstance(found, list) else None


def _tell_kept(rows: Sequence[Mapping[str, Any]]) -> None:
    """What stays, and why."""
    for row in rows:
        for kept in row.get("kept") or ():
            size = units.size(int(kept.get("bytes") or 0))
            ui.label(plain(f"Kept: {row.get('kind')}, {size}: {kept.get('reason')}", 400)).classes("mlw-faint")


def _free(row: Mapping[str, Any]) -> int:
    """Bytes that can go. Of this machine only that is told."""
    return int(row.get("can_go_bytes", row.get("bytes")) or 0)


def _table(rows: Sequence[Mapping[str, Any]], last: str) -> None:
    """``last``: the word above the bytes."""
    shown = [row for row in rows if row.get("things")]
    if not shown:
        return
    there = any("can_go_bytes" in row for row in shown)
    columns = ["Kind", "Items", *(["Size", last] if there else [last])]
    with ui.element("table").classes("mlw-plain-table"):
        with ui.element("thead"), ui.element("tr"):
            for name in columns:
                with ui.element("th").props("scope=col"):
                    ui.label(name)
        with ui.element("tbody"):
            for row in shown:
                with ui.element("tr"):
                    for text in _cells(row, there):
                        with ui.element("td"):
                            ui.label(text)


def _cells(row: Mapping[str, Any], there: bool) -> list[str]:
    first = [plain(str(row.get("kind")), 100), str(row.get("things"))]
    size = units.size(int(row.get("bytes") or 0))
    return [*first, size, units.size(_free(row))] if there else [*first, size]
