"""The files of a project: the tree at the left, the file that is looked at beside it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from ...report.plain import plain
from .. import saving
from ..answers.files import AVAILABLE, NOT_HERE
from ..desk import Desk
from ..parts.addresses import show_address
from ..parts.empty import empty
from ..parts.filepane import FilePane
from ..parts.frame import Here, frame
from ..parts.opening import project_page
from ..parts.tree import Tree
from ..parts.trouble import telling

_PAUSE = 2.0  # seconds between two looks at what is not saved
_LISTED = 8


def register(desk: Desk) -> None:
    @project_page(desk, "/files", "Files")
    async def files(where: Here, path: str = "", line: int = 0) -> None:
        with frame(desk, f"Files of {where.project.name}", where, active="Files", wide=True):
            if not AVAILABLE:
                empty("folder_open", "File editor not available on Windows", NOT_HERE, top=True)
                return
            await desk.ask(lambda _: desk.drafts.of(where.key))  # from the disk, the first time
            view = FilesView(desk, where, path)
        if path:
            await view.pane.open(path, line or None)


class FilesView:
    """Tree and file of one page."""

    def __init__(self, desk: Desk, where: Here, path: str) -> None:
        self._desk = desk
        self._where = where
        self._marked = (path, "file" if path else "folder")
        with ui.element("div").classes("mlw-files"):
            with ui.element("div").classes("mlw-files-tree"):
                with ui.row().classes("mlw-files-head"):
                    with ui.element("h1"):
                        ui.label("Files")
                    ui.space()
                    refresh = ui.button("Refresh", icon="refresh", on_click=self._refresh)
                    refresh.props("flat dense no-caps")
                with ui.row().classes("mlw-files-actions"):
                    for icon, words, action in (
                        ("note_add", "New file", self._new_file),
                        ("create_new_folder", "New folder", self._new_folder),
                        ("drive_file_rename_outline", "Rename", self._rename),
                        ("delete_outline", "Delete", self._delete),
                    ):
                        button = ui.button(icon=icon, on_click=action).props("flat dense").tooltip(words)
                        button._props["aria-label"] = words
                self._list = ui.element("div").classes("mlw-unsaved").props('role=group aria-label="Unsaved files"')
                self._listed: list[str] = []
                self._tree = Tree(where.key, path, self._unsaved())
                self._tree.on("open", self._open)
                self._tree.on("select", self._select)
            self.pane = FilePane(desk, where, self._told)
        self._told()
        ui.timer(_PAUSE, self._told)  # another page may have typed or saved something

    def _refresh(self) -> None:
        self._tree.refresh()

    def _unsaved(self) -> list[str]:
        return sorted(self._desk.drafts.of(self._where.key))

    def _told(self) -> None:
        unsaved = self._unsaved()
        self._tree.mark_unsaved(unsaved)
        if unsaved == self._listed:
            return
        self._listed = unsaved
        self._list.clear()
        with self._list:
            if unsaved:
                ui.label("Unsaved files").classes("mlw-faint mlw-small")
            for path in unsaved[:_LISTED]:
                button = ui.button(plain(path, 200), on_click=lambda path=path: self.go(path))
                button.props("flat dense no-caps align=left icon=edit_note")
            if len(unsaved) > _LISTED:
                ui.label(f"and {len(unsaved) - _LISTED} more").classes("mlw-faint mlw-small")

    async def _open(self, event: Any) -> None:
        await self.go(str(event.args))

    async def go(self, path: str) -> None:
        self._marked = (path, "file")
        show_address(f"{self._where.address}/files?" + urlencode({"path": path}))
        self._tree.show(path)
        await self.pane.open(path)

    def _select(self, event: Any) -> None:
        self._marked = (str(event.args["path"]), str(event.args["kind"]))

    def _folder(self) -> str:
        """Where a new name goes: into the marked folder, or beside the marked file."""
        path, kind = self._marked
        folder = path if kind == "folder" else posixpath.dirname(path)
        return f"{folder}/" if folder else ""

    # -- changes -----------------------------------------------------------------------------------

    async def _new_file(self) -> None:
        path = await ask_name("New file", self._folder(), "Create")
        if path and await self._do(lambda: saving.make_file(self._where.project.root, path)):
            await self.go(path)

    async def _new_folder(self) -> None:
        path = await ask_name("New folder", self._folder(), "Create")
        if path and await self._do(lambda: saving.make_folder(self._where.project.root, path)):
            self._marked = (path, "folder")
            self._tree.show(path)

    async def _rename(self) -> None:
        path, kind = self._marked
        if not path:
            ui.notify("select a file or folder first")
            return
        to = await ask_name(f"Rename {plain(path, 200)}", path, "Rename")
        if not to or to == path:
            return
        if self._has_drafts(path):
            ui.notify("save or discard the unsaved changes first", type="warning")
            return
        is_open = self.pane.path == path or self.pane.path.startswith(f"{path}/")
        if await self._do(lambda: saving.rename(self._where.project.root, path, to)):
            self._marked = (to, kind)
            if is_open:
                await self.go(to + self.pane.path.removeprefix(path))

    async def _delete(self) -> None:
        path, kind = self._marked
        if not path:
            ui.notify("select a file or folder first")
            return
        if not await ask_delete(path, kind):
            return
        if await self._do(lambda: saving.delete(self._where.project.root, path)):
            for draft in [one for one in self._unsaved() if one == path or one.startswith(f"{path}/")]:
                self._desk.drafts.drop(self._where.key, draft)
            if self.pane.path == path or self.pane.path.startswith(f"{path}/"):
                self.pane.close()
                show_address(f"{self._where.address}/files")
            self._marked = ("", "folder")
            self._told()

    def _has_drafts(self, path: str) -> bool:
        return any(one == path or one.startswith(f"{path}/") for one in self._unsaved())

    async def _do(self, work: Callable[[], None]) -> bool:
        with telling():
            await self._desk.ask(lambda _: work())
            self._tree.refresh()
            return True
        return False


async def ask_name(title: str, name: str, verb: str) -> str | None:
    """A path in the project; None if it was given up."""
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-ask"):
        dialog.props('aria-label="Name"')
        ui.label(title).classes("mlw-empty-title")
        field = ui.input("Path in the project", value=name).props("outlined dense autofocus").classes("mlw-mono")
        field.on("keydown.enter", lambda: dialog.submit(field.value))
        with ui.row():
            ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat no-caps")
            ui.button(verb, on_click=lambda: dialog.submit(field.value)).props("unelevated no-caps")
    return _said(await _answer(dialog))


async def ask_delete(path: str, kind: str) -> bool:
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-ask"):
        dialog.props('aria-label="Delete"')
        what = "the folder and its contents" if kind == "folder" else "the file"
        ui.label(f"Delete {plain(path, 200)}?").classes("mlw-empty-title")
        ui.label(f"This deletes {what} from disk. Past runs keep their own copy of the code.")
        with ui.row():
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button("Delete", on_click=lambda: dialog.submit(True)).props("unelevated no-caps color=negative")
    return bool(await _answer(dialog))


async def _answer(dialog: ui.dialog) -> Any:
    dialog.on("hide", dialog.delete)
    return await dialog


def _said(value: Any) -> str | None:
    return str(value).strip().strip("/") or None if value else None
