"""Files page of a project: tree on the left, open file on the right."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from ...sanitize import plain
from .. import file_saving
from ..backend import Backend
from ..components.empty_state import empty_state
from ..components.error_notice import report_errors
from ..components.file_pane import FilePane
from ..components.file_tree import FileTree
from ..components.page_frame import ProjectScope, frame
from ..components.page_links import show_address
from ..components.page_setup import project_page
from ..queries.files import AVAILABLE, UNAVAILABLE

_POLL_INTERVAL = 2.0  # seconds between checks for unsaved files
_MAX_LISTED = 8


def register(backend: Backend) -> None:
    @project_page(backend, "/files", "Files")
    async def files(scope: ProjectScope, path: str = "", line: int = 0) -> None:
        with frame(backend, f"Files of {scope.project.name}", scope, active="Files", wide=True):
            if not AVAILABLE:
                empty_state("folder_open", "File editor not available on Windows", UNAVAILABLE, top=True)
                return
            await backend.call(lambda _: backend.drafts.for_project(scope.key))  # loads drafts from disk on first use
            view = FilesView(backend, scope, path)
        if path:
            await view.pane.open(path, line or None)


class FilesView:
    """Tree and file pane of one page."""

    def __init__(self, backend: Backend, scope: ProjectScope, path: str) -> None:
        self._backend = backend
        self._scope = scope
        self._selected = (path, "file" if path else "folder")
        with ui.element("div").classes("mlw-files"):
            with ui.element("div").classes("mlw-files-tree"):
                with ui.row().classes("mlw-files-head"):
                    with ui.element("h1"):
                        ui.label("Files")
                    ui.space()
                    refresh = ui.button("Refresh", icon="refresh", on_click=self._refresh)
                    refresh.props("flat dense no-caps")
                with ui.row().classes("mlw-files-actions"):
                    for icon, label, action in (
                        ("note_add", "New file", self._new_file),
                        ("create_new_folder", "New folder", self._new_folder),
                        ("drive_file_rename_outline", "Rename", self._rename),
                        ("delete_outline", "Delete", self._delete),
                    ):
                        button = ui.button(icon=icon, on_click=action).props("flat dense").tooltip(label)
                        button._props["aria-label"] = label
                self._unsaved_box = (
                    ui.element("div").classes("mlw-unsaved").props('role=group aria-label="Unsaved files"')
                )
                self._listed: list[str] = []
                self._tree = FileTree(scope.key, path, self._unsaved())
                self._tree.on("open", self._open)
                self._tree.on("select", self._select)
            self.pane = FilePane(backend, scope, self._show_unsaved)
        self._show_unsaved()
        ui.timer(_POLL_INTERVAL, self._show_unsaved)  # another page may have edited or saved files

    def _refresh(self) -> None:
        self._tree.refresh()

    def _unsaved(self) -> list[str]:
        return sorted(self._backend.drafts.for_project(self._scope.key))

    def _show_unsaved(self) -> None:
        unsaved = self._unsaved()
        self._tree.mark_unsaved(unsaved)
        if unsaved == self._listed:
            return
        self._listed = unsaved
        self._unsaved_box.clear()
        with self._unsaved_box:
            if unsaved:
                ui.label("Unsaved files").classes("mlw-faint mlw-small")
            for path in unsaved[:_MAX_LISTED]:
                button = ui.button(plain(path, 200), on_click=lambda path=path: self.open_file(path))
                button.props("flat dense no-caps align=left icon=edit_note")
            if len(unsaved) > _MAX_LISTED:
                ui.label(f"and {len(unsaved) - _MAX_LISTED} more").classes("mlw-faint mlw-small")

    async def _open(self, event: Any) -> None:
        await self.open_file(str(event.args))

    async def open_file(self, path: str) -> None:
        self._selected = (path, "file")
        show_address(f"{self._scope.address}/files?" + urlencode({"path": path}))
        self._tree.show(path)
        await self.pane.open(path)

    def _select(self, event: Any) -> None:
        self._selected = (str(event.args["path"]), str(event.args["kind"]))

    def _folder(self) -> str:
        """Return the folder for a new entry: the selected folder, or the parent of the selected file."""
        path, kind = self._selected
        folder = path if kind == "folder" else posixpath.dirname(path)
        return f"{folder}/" if folder else ""

    # -- changes -----------------------------------------------------------------------------------

    async def _new_file(self) -> None:
        path = await ask_name("New file", self._folder(), "Create")
        if path and await self._change(lambda: file_saving.create_file(self._scope.project.root, path)):
            await self.open_file(path)

    async def _new_folder(self) -> None:
        path = await ask_name("New folder", self._folder(), "Create")
        if path and await self._change(lambda: file_saving.create_folder(self._scope.project.root, path)):
            self._selected = (path, "folder")
            self._tree.show(path)

    async def _rename(self) -> None:
        path, kind = self._selected
        if not path:
            ui.notify("select a file or folder first")
            return
        new_path = await ask_name(f"Rename {plain(path, 200)}", path, "Rename")
        if not new_path or new_path == path:
            return
        if self._has_drafts(path):
            ui.notify("save or discard the unsaved changes first", type="warning")
            return
        is_open = self.pane.path == path or self.pane.path.startswith(f"{path}/")
        if await self._change(lambda: file_saving.rename(self._scope.project.root, path, new_path)):
            self._selected = (new_path, kind)
            if is_open:
                await self.open_file(new_path + self.pane.path.removeprefix(path))

    async def _delete(self) -> None:
        path, kind = self._selected
        if not path:
            ui.notify("select a file or folder first")
            return
        if not await ask_delete(path, kind):
            return
        if await self._change(lambda: file_saving.delete(self._scope.project.root, path)):
            for draft in [name for name in self._unsaved() if name == path or name.startswith(f"{path}/")]:
                self._backend.drafts.drop(self._scope.key, draft)
            if self.pane.path == path or self.pane.path.startswith(f"{path}/"):
                self.pane.close()
                show_address(f"{self._scope.address}/files")
            self._selected = ("", "folder")
            self._show_unsaved()

    def _has_drafts(self, path: str) -> bool:
        return any(draft == path or draft.startswith(f"{path}/") for draft in self._unsaved())

    async def _change(self, change: Callable[[], None]) -> bool:
        with report_errors():
            await self._backend.call(lambda _: change())
            self._tree.refresh()
            return True
        return False


async def ask_name(title: str, name: str, verb: str) -> str | None:
    """Ask for a path in the project. Return None if the user cancels."""
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-ask"):
        dialog.props('aria-label="Name"')
        ui.label(title).classes("mlw-empty-title")
        field = ui.input("Path in the project", value=name).props("outlined dense autofocus").classes("mlw-mono")
        field.on("keydown.enter", lambda: dialog.submit(field.value))
        with ui.row():
            ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat no-caps")
            ui.button(verb, on_click=lambda: dialog.submit(field.value)).props("unelevated no-caps")
    return _clean_path(await _show_dialog(dialog))


async def ask_delete(path: str, kind: str) -> bool:
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-ask"):
        dialog.props('aria-label="Delete"')
        what = "the folder and its contents" if kind == "folder" else "the file"
        ui.label(f"Delete {plain(path, 200)}?").classes("mlw-empty-title")
        ui.label(f"This deletes {what} from disk. Past runs keep their own copy of the code.")
        with ui.row():
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button("Delete", on_click=lambda: dialog.submit(True)).props("unelevated no-caps color=negative")
    return bool(await _show_dialog(dialog))


async def _show_dialog(dialog: ui.dialog) -> Any:
    dialog.on("hide", dialog.delete)
    return await dialog


def _clean_path(value: Any) -> str | None:
    return str(value).strip().strip("/") or None if value else None
