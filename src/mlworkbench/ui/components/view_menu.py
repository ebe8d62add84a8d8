"""Menu of saved views of the run list: open, save, rename, and delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import quote

from nicegui import ui

from ...sanitize import plain
from ...saved_views import View as SavedView
from ..backend import Backend
from ..queries import run_views, runs
from .error_notice import report_errors
from .run_dialogs import dialog_buttons, titled_dialog
from .run_filter import View
from .view_settings import Names, command_line_only, to_page_view, to_saved_view


class ViewMenu:
    """Button with a menu. ``current`` returns the view that the page shows, and ``path`` is the page."""

    def __init__(self, backend: Backend, project: str | None, path: str, current: Callable[[], View]) -> None:
        self._backend, self._project, self._path, self._current = backend, project, path, current
        with ui.button("Views", icon="bookmarks", on_click=self._fill, color=None) as button, ui.menu():
            button.props("flat dense no-caps aria-haspopup=menu").classes("mlw-action")
            ui.menu_item("Save view…", on_click=self._save).props("role=menuitem")
            self._manage_item = ui.menu_item("Rename or delete…", on_click=self._manage).props("role=menuitem")
            self._items = ui.element("div").props('role=group aria-label="Saved views"').classes("mlw-views")
        self._manage_item.set_visibility(False)

    async def _names(self) -> Names:
        query = runs.RunFilter(project=self._project, children=True, archived=True)
        return await self._backend.call(runs.names, query)

    async def _fill(self) -> None:
        """Show the current names, including views that the command line saved in the meantime."""
        with report_errors():
            views = await self._backend.call(run_views.views, self._project)
            names = await self._names()
            self._manage_item.set_visibility(bool(views))
            self._items.clear()
            with self._items:
                for name, saved in views.items():
                    self._add_item(name, command_line_only(saved, names))

    def _add_item(self, name: str, not_applied: str) -> None:
        with ui.menu_item(on_click=partial(self._open, name)).props("role=menuitem"), ui.item_section():
            ui.item_label(plain(name, run_views.MAX_NAME))
            if not_applied:
                ui.item_label(f"Command line only: {plain(not_applied, 100)}").props("caption")

    async def _open(self, name: str) -> None:
        with report_errors():
            saved = await self._backend.call(run_views.get, self._project, name)
            ui.navigate.to(to_page_view(saved, await self._names()).to_address(quote(self._path)))

    async def _save(self) -> None:
        with self._items.client, titled_dialog("Save view") as dialog:
            field = _name_field(dialog, "")
            ui.label("Saves the filter, the sort order, the columns, and the chart.").classes("mlw-faint")
            scope = "" if self._project else " --all"
            ui.label(f"Open it on the command line: mlw history list{scope} --view NAME").classes(
                "mlw-mono mlw-faint mlw-said"
            )
            dialog_buttons(dialog, "Save")
        name = str(field.value or "").strip() if await dialog else ""
        if not name:
            return
        with report_errors():
            exists = name in await self._backend.call(run_views.views, self._project)
            if exists and not await self._confirm(f"Replace view {name}?", "Replace"):
                return
            names, view = await self._names(), self._current()

            def update(existing: SavedView) -> SavedView:
                return to_saved_view(view, existing, names)

            await self._backend.call(run_views.save, self._project, name, update, replace=exists)
            self._notify(f"saved view {name}")

    async def _manage(self) -> None:
        views: dict[str, SavedView] = {}
        with report_errors():
            views = await self._backend.call(run_views.views, self._project)
        if not views:
            return
        with self._items.client, titled_dialog("Saved views") as dialog:
            with ui.element("ul").classes("mlw-views-list"):
                for name in views:
                    with ui.element("li"):
                        ui.label(plain(name, run_views.MAX_NAME))
                        self._button(dialog, "edit", f"Rename {name}", partial(self._rename, name))
                        self._button(dialog, "delete", f"Delete {name}", partial(self._delete, name))
            with ui.row().classes("mlw-dialog-buttons"):
                button = ui.button("Close", on_click=lambda: dialog.submit(None), color=None)
                button.props("flat no-caps").classes("mlw-action")
        action = await dialog
        if action:
            await action()

    def _button(self, dialog: ui.dialog, icon: str, label: str, action: Callable[[], Awaitable[None]]) -> None:
        button = ui.button(icon=icon, on_click=lambda: dialog.submit(action), color=None).props("flat dense round")
        button._props["aria-label"] = plain(label, 200)

    async def _rename(self, name: str) -> None:
        with self._items.client, titled_dialog(f"Rename view {name}") as dialog:
            field = _name_field(dialog, plain(name, run_views.MAX_NAME))
            dialog_buttons(dialog, "Rename")
        new_name = str(field.value or "").strip() if await dialog else ""
        if new_name and new_name != name:
            with report_errors():
                await self._backend.call(run_views.rename, self._project, name, new_name)
                self._notify(f"view {name} is now named {new_name}")

    async def _delete(self, name: str) -> None:
        if await self._confirm(f"Delete view {name}?", "Delete"):
            with report_errors():
                await self._backend.call(run_views.delete, self._project, name)
                self._notify(f"deleted view {name}")

    async def _confirm(self, title: str, yes: str) -> bool:
        with self._items.client, titled_dialog(title) as dialog:
            ui.label("Runs are not affected.").classes("mlw-faint")
            dialog_buttons(dialog, yes, bad=True)
        return bool(await dialog)

    def _notify(self, message: str) -> None:
        with self._items.client:
            ui.notify(plain(message, 300), type="positive")


def _name_field(dialog: ui.dialog, value: str) -> ui.input:
    field = ui.input("Name", value=value).props(f"outlined dense autofocus maxlength={run_views.MAX_NAME}")
    field.classes("mlw-full").on("keydown.enter", lambda: dialog.submit(True))
    return field
