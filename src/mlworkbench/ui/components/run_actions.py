"""Actions on the runs selected in a grid."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from nicegui import ui

from ...report.units import pluralize
from ...sanitize import plain
from ..backend import Backend
from ..queries import compare
from . import run_dialogs

_MAX_COMPARED = 200  # maximum number of compared runs


class RunActions:
    """Toolbar whose buttons are disabled if they do not apply to the selection."""

    def __init__(
        self,
        backend: Backend,
        on_change: Callable[[], Awaitable[None]],
        select_all: Callable[[], Awaitable[None]],
        select_none: Callable[[], None],
    ) -> None:
        self._backend, self._on_change, self._select_none = backend, on_change, select_none
        self._selected: list[dict[str, Any]] = []
        with ui.element("div").classes("mlw-actions").props('role=toolbar aria-label="Selected runs"'):
            self._button("All", "done_all", select_all)._props["aria-label"] = "Select all"
            self._none = self._button("None", "remove_done", select_none)
            self._none._props["aria-label"] = "Select none"
            self._count_label = ui.label().classes("mlw-faint mlw-actions-count").props("role=status")
            self._compare = self._button("Compare", "compare_arrows", self._open_comparison)
            self._rerun = self._button("Rerun", "replay", self._do_rerun)
            self._tag = self._button("Tag", "sell", self._do_tag)
            self._archive = self._button("Archive", "archive", self._do_archive).classes("mlw-actions-wide")
            self._cancel = self._button("Cancel", "stop_circle", self._do_cancel)
            self._remove = self._button("Delete", "delete", self._do_remove)
            self._export = self._button("Export", "download", self._show_export_commands)
        self.set_selection([])

    def _button(self, label: str, icon: str, click: Callable[[], Any]) -> ui.button:
        button = ui.button(label, icon=icon, on_click=click, color=None)
        return button.props("flat dense no-caps").classes("mlw-action")

    @property
    def _ids(self) -> list[str]:
        return [str(run["id"]) for run in self._selected]

    def set_selection(self, rows: Any) -> None:
        self._selected = [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
        count = len(self._selected)
        active = [row for row in self._selected if not row.get("final")]
        self._count_label.set_text(f"{count:,} selected")
        self._archive.set_text("Unarchive" if self._is_unarchive else "Archive")
        for button, is_enabled in (
            (self._none, count > 0),
            (self._compare, 1 < count <= _MAX_COMPARED or (count == 1 and bool(self._selected[0].get("sweep")))),
            (self._rerun, count == 1),
            (self._tag, count > 0),
            (self._archive, count > 0),
            (self._cancel, bool(active)),
            (self._remove, count > 0 and not active),
            (self._export, count > 0),
        ):
            button.set_enabled(is_enabled)

    @property
    def _is_unarchive(self) -> bool:
        return bool(self._selected) and all(run.get("archived") for run in self._selected)

    async def _open_comparison(self) -> None:
        """Compare the selected runs. A sweep is replaced by its child runs."""
        ids = (
            await self._backend.call(compare.expand_sweeps, self._ids)
            if any(run.get("sweep") for run in self._selected)
            else self._ids
        )
        if len(ids) > _MAX_COMPARED:
            ui.notify(f"Comparing the first {_MAX_COMPARED} of {len(ids):,} runs.")
        ui.navigate.to(f"/compare?runs={quote(','.join(ids[:_MAX_COMPARED]), safe=',')}")

    async def _do_rerun(self) -> None:
        await run_dialogs.rerun(self._backend, self._ids[0])

    async def _do_tag(self) -> None:
        await self._refresh_after(await run_dialogs.tag(self._backend, self._ids))

    async def _do_archive(self) -> None:
        await self._refresh_after(
            await run_dialogs.archive(self._backend, self._ids, self._is_unarchive), clear_selection=True
        )

    async def _do_remove(self) -> None:
        await self._refresh_after(await run_dialogs.remove(self._backend, self._ids), clear_selection=True)

    async def _do_cancel(self) -> None:
        for run_id in [str(run["id"]) for run in self._selected if not run.get("final")]:
            await self._refresh_after(await run_dialogs.cancel(self._backend, run_id))

    async def _refresh_after(self, has_changed: bool, clear_selection: bool = False) -> None:
        if has_changed:
            if clear_selection:  # the runs may vanish from the list, where users could not deselect them
                self._select_none()
            await self._on_change()

    def _show_export_commands(self) -> None:
        ids = self._ids
        with run_dialogs.titled_dialog(f"Export {pluralize(len(ids), 'run')}") as dialog:
            ui.label("Run one of these commands to export to CSV, JSON, or an HTML page:")
            for kind in ("csv", "json", "html"):
                command = shlex.join(("mlw", "history", "export", "--to", f"runs.{kind}", *ids))
                ui.label(plain(command, 4000)).classes("mlw-mono mlw-command mlw-said")
            with ui.row().classes("mlw-dialog-buttons"):
                button = ui.button("Close", on_click=dialog.close, color=None)
                button.props("flat no-caps").classes("mlw-action")
        dialog.open()
