"""Outputs tab: browse, preview, and download outputs, and save them as assets."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ....errors import MlwError, UnknownName
from ....report.units import pluralize, size
from ....sanitize import plain
from ...components.empty_state import empty_state
from ...components.file_list import FileList, Row
from ...components.page_links import full_address
from ...components.property_list import table
from ...queries import outputs as queries
from . import actions
from .page_context import RunPageContext

_MAX_ENTRIES = 500  # maximum number of entries


async def show(context: RunPageContext) -> None:
    await OutputsTab(context).build()


class OutputsTab:
    """Content of the outputs tab."""

    def __init__(self, context: RunPageContext) -> None:
        self._context = context
        self._text = ""
        self._request_number = 0

    async def build(self) -> None:
        path = requested_path(self._context)
        listing = await self._listing(path)
        if not listing.count and not listing.folder:
            self._show_empty()
            return
        if not listing.home:
            self._show_remote_notice()
        with ui.element("div").classes("mlw-run-browse"):
            with ui.element("div").classes("mlw-run-browse-list"):
                self._head = ui.row().classes("mlw-run-browse-head")
                self._search = ui.input("Search files").props("outlined dense clearable debounce=250")
                self._search._props["maxlength"] = 500
                self._search.on_value_change(lambda event: self._search_files(str(event.value or "")))
                self._list = FileList(self._open)
                self._more = ui.label().classes("mlw-faint")
            self._preview_box = ui.element("div").classes("mlw-run-browse-look")
        self._draw(listing, path)
        await self._show(path, self._request_number)

    async def _listing(self, path: str) -> queries.Listing:
        """List the folder at ``path``, or its parent folder if it is a file, or else the top folder."""
        for folder in dict.fromkeys((path, path.rpartition("/")[0], "")):
            try:
                return await self._context.backend.call(queries.listing, self._context.run.id, folder)
            except UnknownName:
                continue
        return queries.Listing("", [], 0, 0, True, False)

    def _show_empty(self) -> None:
        run = self._context.run
        title = "No outputs." if run.status.final else "No outputs yet."
        empty_state("folder_open", title, "Files that a script writes to outputs/ are saved and shown here.")

    def _show_remote_notice(self) -> None:
        run = self._context.run
        with ui.row().classes("mlw-run-note"):
            ui.icon("cloud").props("aria-hidden=true")
            ui.label(f"Some outputs are not on this machine yet; they are on {plain(run.spec.compute.name, 80)}.")
            if run.status.final:
                ui.button("Fetch outputs", on_click=lambda: actions.download(self._context)).props("flat dense no-caps")

    def _draw(self, listing: queries.Listing, selected: str) -> None:
        self._current = listing
        self._head.clear()
        with self._head:
            self._crumbs(listing.folder)
            ui.space()
            ui.label(f"{pluralize(listing.count, 'file')}, {size(listing.size)}").classes("mlw-faint")
        self._list.show([_row(entry) for entry in listing.entries[:_MAX_ENTRIES]], selected)
        remaining = len(listing.entries) - _MAX_ENTRIES
        if not listing.entries:
            self._more.set_text("No matching files.")
        else:
            self._more.set_text(
                "and more; search to find them" if listing.more else f"and {remaining} more; search to find them"
            )
        self._more.set_visibility(remaining > 0 or listing.more or not listing.entries)

    def _crumbs(self, folder: str) -> None:
        names = folder.split("/") if folder else []
        with ui.element("nav").props('aria-label="Folder"').classes("mlw-run-crumbs"):
            self._crumb("outputs", "")
            for index, name in enumerate(names):
                ui.label("/").props("aria-hidden=true")
                self._crumb(name, "/".join(names[: index + 1]))

    def _crumb(self, name: str, path: str) -> None:
        ui.button(plain(name, 60), on_click=lambda: self._open(path)).props("flat dense no-caps padding='0 2px'")

    async def _open(self, path: str) -> None:
        """Open a folder or a file.

        The listing of a finished run cannot change, so it is not reloaded for a file.
        """
        self._request_number += 1
        number = self._request_number
        self._context.update_query(path=path)
        is_listed = any(entry.path == path and entry.kind != "folder" for entry in self._current.entries)
        if is_listed and (self._text or self._context.run.status.final):
            self._list.select(path)
        else:
            self._text = ""
            self._search.set_value("")
            try:
                listing = await self._listing(path)
            except MlwError as error:
                listing = queries.Listing("", [], 0, 0, True, False)
                ui.notify(plain(error.message, 300), type="negative")
            if self._is_outdated(number):
                return
            self._draw(listing, path)
        await self._show(path, number)

    async def _search_files(self, text: str) -> None:
        if text == self._text:
            return
        self._request_number += 1
        number, self._text = self._request_number, text
        run, folder = self._context.run.id, self._current.folder
        try:
            listing = await self._context.backend.call(queries.listing, run, folder, text)
        except MlwError:
            return  # the folder no longer exists
        if not self._is_outdated(number):
            self._draw(listing, self._context.query.get("path", ""))

    def _is_outdated(self, number: int) -> bool:
        """Return whether the user has selected something else or left the tab."""
        return number != self._request_number or self._preview_box.is_deleted

    async def _show(self, path: str, number: int) -> None:
        """Show a preview of the file, or a prompt to select one."""
        backend, run = self._context.backend, self._context.run.id
        entry = _find_file(self._current, path)
        preview: queries.Preview | str = ""
        try:
            if entry is None and path and path != self._current.folder:  # a very large folder is listed only partly
                entry = _find_file(
                    await backend.call(queries.listing, run, path.rpartition("/")[0], path.rpartition("/")[2]), path
                )
            if entry is not None and entry.kind == "file" and entry.here:
                preview = await backend.call(queries.preview, run, entry.path)
        except UnknownName:
            preview = "This file no longer exists."
        except MlwError as error:
            preview = plain(error.message, 500)
        if self._is_outdated(number):
            return
        self._preview_box.clear()
        with self._preview_box:
            if entry is None:
                ui.label("Select a file to view it.").classes("mlw-faint")
                return
            self._title(entry)
            self._content(entry, preview)

    def _content(self, entry: queries.Entry, preview: queries.Preview | str) -> None:
        if entry.kind != "file":
            to = f" to {plain(entry.to, 300)}" if entry.to else ""
            ui.label(f"This is a {plain(entry.kind, 40)}{to}; mlw does not follow it.").classes("mlw-faint")
        elif not entry.here:
            ui.label("This file is not on this machine yet.").classes("mlw-faint")
        elif isinstance(preview, str):
            ui.label(preview).classes("mlw-bad")
        else:
            self._preview(preview)

    def _title(self, entry: queries.Entry) -> None:
        with ui.row().classes("mlw-run-browse-head"):
            with ui.element("h2"):
                ui.label(plain(entry.path, 300)).classes("mlw-said")
            ui.label(size(entry.size)).classes("mlw-faint")
            ui.space()
            if entry.kind == "file" and entry.here:
                ui.link("Download", self._address(entry.path)).props("download").classes("mlw-log-button")
            if not self._context.facts.is_untracked:
                button = ui.button("Save as asset", on_click=lambda: actions.promote(self._context, entry.path))
                button.props("flat dense no-caps")

    def _preview(self, preview: queries.Preview) -> None:
        path = preview.path
        if preview.kind == "image":
            picture = ui.element("img").classes("mlw-run-picture-image")
            picture._props["src"] = full_address(self._address(path))
            picture._props["alt"] = plain(path, 300)
        elif preview.kind == "table":
            table(preview.titles, preview.rows, plain(path, 300))
        elif preview.kind == "none":
            ui.label(preview.text).classes("mlw-faint")
        else:
            with ui.element("pre").classes("mlw-run-text").props("tabindex=0"):
                ui.label(preview.text)
        if preview.cut:
            ui.label("Preview truncated.").classes("mlw-faint")

    def _address(self, path: str) -> str:
        return f"{self._context.api}/outputs/file?path={quote(path, safe='')}"


def _find_file(listing: queries.Listing, path: str) -> queries.Entry | None:
    return next((entry for entry in listing.entries if entry.path == path and entry.kind != "folder"), None)


def _row(entry: queries.Entry) -> Row:
    icon = {"folder": "folder", "link": "link"}.get(entry.kind, "description")
    note = f"{pluralize(entry.count, 'file')}, {size(entry.size)}" if entry.kind == "folder" else size(entry.size)
    labels = (entry.logged, "" if entry.here else "remote")
    return Row(entry.path, plain(entry.name, 200), icon, note, tuple(label for label in labels if label))


def requested_path(context: RunPageContext) -> str:
    return "/".join(name for name in context.query.get("path", "").split("/") if name not in ("", ".", ".."))[:4096]
