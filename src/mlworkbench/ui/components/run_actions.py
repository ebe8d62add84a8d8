"""What can be done to the runs that were chosen in a grid."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from nicegui import ui

from ...report.plain import plain
from ...report.units import counted
from ..answers import compare
from ..desk import Desk
from . import rundialogs

_MOST = 200  # that are compared


class RunActions:
    """A row of buttons; those that make no sense for what is chosen cannot be pressed."""

    def __init__(
        self,
        desk: Desk,
        changed: Callable[[], Awaitable[None]],
        choose_all: Callable[[], Awaitable[None]],
        choose_none: Callable[[], None],
    ) -> None:
        self._desk, self._changed, self._choose_none = desk, changed, choose_none
        self._chosen: list[dict[str, Any]] = []
        with ui.element("div").classes("mlw-actions").props('role=toolbar aria-label="Selected runs"'):
            self._button("All", "done_all", choose_all)._props["aria-label"] = "Select all"
            self._none = self._button("None", "remove_done", choose_none)
            self._none._props["aria-label"] = "Select none"
            self._words = ui.label().classes("mlw-faint mlw-actions-count").props("role=status")
            self._compare = self._button("Compare", "compare_arrows", self._go_compare)
            self._rerun = self._button("Rerun", "replay", self._do_rerun)
            self._tag = self._button("Tag", "sell", self._do_tag)
            self._archive = self._button("Archive", "archive", self._do_archive).classes("mlw-actions-wide")
            self._cancel = self._button("Cancel", "stop_circle", self._do_cancel)
            self._remove = self._button("Delete", "delete", self._do_remove)
            self._export = self._button("Export", "download", self._tell_export)
        self.choose([])

    def _button(self, word: str, icon: str, click: Callable[[], Any]) -> ui.button:
        button = ui.button(word, icon=icon, on_click=click, color=None)
        return button.props("flat dense no-caps").classes("mlw-action")

    @property
    def _ids(self) -> list[str]:
        return [str(one["id"]) for one in self._chosen]

    def choose(self, rows: Any) -> None:
        self._chosen = [one for one in rows if isinstance(one, dict) and isinstance(one.get("id"), str)]
        count = len(self._chosen)
        going = [one for one in self._chosen if not one.get("final")]
        self._words.set_text(f"{count:,} selected")
        self._archive.set_text("Unarchive" if self._undo else "Archive")
        for button, fits in (
            (self._none, count > 0),
            (self._compare, 1 < count <= _MOST or (count == 1 and bool(self._chosen[0].get("sweep")))),
            (self._rerun, count == 1),
            (self._tag, count > 0),
            (self._archive, count > 0),
            (self._cancel, bool(going)),
            (self._remove, count > 0 and not going),
            (self._export, count > 0),
        ):
            button.set_enabled(fits)

    @property
    def _undo(self) -> bool:
        return bool(self._chosen) and all(one.get("archived") for one in self._chosen)

    async def _go_compare(self) -> None:
        """A sweep means its children."""
        ids = (
            await self._desk.ask(compare.meant, self._ids)
            if any(one.get("sweep") for one in self._chosen)
            else self._ids
        )
        if len(ids) > _MOST:
            ui.notify(f"Comparing the first {_MOST} of {len(ids):,} runs.")
        ui.navigate.to(f"/compare?runs={quote(','.join(ids[:_MOST]), safe=',')}")

    async def _do_rerun(self) -> None:
        await rundialogs.rerun(self._desk, self._ids[0])

    async def _do_tag(self) -> None:
        await self._after(await rundialogs.tag(self._desk, self._ids))

    async def _do_archive(self) -> None:
        await self._after(await rundialogs.archive(self._desk, self._ids, self._undo), gone=True)

    async def _do_remove(self) -> None:
        await self._after(await rundialogs.remove(self._desk, self._ids), gone=True)

    async def _do_cancel(self) -> None:
        for one in [str(one["id"]) for one in self._chosen if not one.get("final")]:
            await self._after(await rundialogs.cancel(self._desk, one))

    async def _after(self, done: bool, gone: bool = False) -> None:
        if done:
            if gone:  # what is not in the list any more cannot be unchosen there
                self._choose_none()
            await self._changed()

    def _tell_export(self) -> None:
        ids = self._ids
        with rundialogs.asking(f"Export {counted(len(ids), 'run')}") as dialog:
            ui.label("Run one of these commands to export to CSV, JSON, or an HTML page:")
            for kind in ("csv", "json", "html"):
                words = shlex.join(("mlw", "history", "export", "--to", f"runs.{kind}", *ids))
                ui.label(plain(words, 4000)).classes("mlw-mono mlw-command mlw-said")
            with ui.row().classes("mlw-dialog-buttons"):
                no = ui.button("Close", on_click=dialog.close, color=None)
                no.props("flat no-caps").classes("mlw-action")
        dialog.open()
