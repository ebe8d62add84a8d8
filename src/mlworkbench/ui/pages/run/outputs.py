"""The outputs of a run: folders and files, a look into one of them, download, keep."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ....errors import MlwError, UnknownName
from ....report.plain import plain
from ....report.units import counted, size
from ...answers import outputs as answers
from ...parts.addresses import full_address
from ...parts.empty import empty
from ...parts.facts import table
from ...parts.filelist import FileList, Row
from . import deeds
from .context import Context

_SHOWN = 500  # entries


async def show(context: Context) -> None:
    await Outputs(context).build()


class Outputs:
    """The tab of one page."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._text = ""
        self._turn = 0

    async def build(self) -> None:
        path = context_path(self._context)
        found = await self._listing(path)
        if not found.count and not found.folder:
            self._nothing()
            return
        if not found.home:
            self._elsewhere()
        with ui.element("div").classes("mlw-run-browse"):
            with ui.element("div").classes("mlw-run-browse-list"):
                self._head = ui.row().classes("mlw-run-browse-head")
                self._search = ui.input("Search files").props("outlined dense clearable debounce=250")
                self._search._props["maxlength"] = 500
                self._search.on_value_change(lambda event: self._seek(str(event.value or "")))
                self._list = FileList(self._go)
                self._more = ui.label().classes("mlw-faint")
            self._look = ui.element("div").classes("mlw-run-browse-look")
        self._draw(found, path)
        await self._show(path, self._turn)

    async def _listing(self, path: str) -> answers.Listing:
        """The folder of this name, or that of the file of this name, or the top."""
        for folder in dict.fromkeys((path, path.rpartition("/")[0], "")):
            try:
                return await self._context.desk.ask(answers.listing, self._context.run.id, folder)
            except UnknownName:
                continue
        return answers.Listing("", [], 0, 0, True, False)

    def _nothing(self) -> None:
        run = self._context.run
        title = "No outputs." if run.status.final else "No outputs yet."
        empty("folder_open", title, "Files that a script writes to outputs/ are saved and shown here.")

    def _elsewhere(self) -> None:
        run = self._context.run
        with ui.row().classes("mlw-run-note"):
            ui.icon("cloud").props("aria-hidden=true")
            ui.label(f"Some outputs are not on this machine yet; they are on {plain(run.spec.compute.name, 80)}.")
            if run.status.final:
                ui.button("Fetch outputs", on_click=lambda: deeds.download(self._context)).props("flat dense no-caps")

    def _draw(self, found: answers.Listing, chosen: str) -> None:
        self._found = found
        self._head.clear()
        with self._head:
            self._crumbs(found.folder)
            ui.space()
            ui.label(f"{counted(found.count, 'file')}, {size(found.size)}").classes("mlw-faint")
        self._list.show([_row(one) for one in found.entries[:_SHOWN]], chosen)
        left = len(found.entries) - _SHOWN
        if not found.entries:
            self._more.set_text("No matching files.")
        else:
            self._more.set_text(
                "and more; search to find them" if found.more else f"and {left} more; search to find them"
            )
        self._more.set_visibility(left > 0 or found.more or not found.entries)

    def _crumbs(self, folder: str) -> None:
        names = folder.split("/") if folder else []
        with ui.element("nav").props('aria-label="Folder"').classes("mlw-run-crumbs"):
            self._crumb("outputs", "")
            for at, name in enumerate(names):
                ui.label("/").props("aria-hidden=true")
                self._crumb(name, "/".join(names[: at + 1]))

    def _crumb(self, name: str, path: str) -> None:
        ui.button(plain(name, 60), on_click=lambda: self._go(path)).props("flat dense no-caps padding='0 2px'")

    async def _go(self, path: str) -> None:
        """To a folder, or to a file; of a run that has ended, the files in sight are those that there are."""
        self._turn += 1
        turn = self._turn
        self._context.keep(path=path)
        known = any(one.path == path and one.kind != "folder" for one in self._found.entries)
        if known and (self._text or self._context.run.status.final):
            self._list.choose(path)
        else:
            self._text = ""
            self._search.set_value("")
            try:
                found = await self._listing(path)
            except MlwError as error:
                found = answers.Listing("", [], 0, 0, True, False)
                ui.notify(plain(error.message, 300), type="negative")
            if self._is_over(turn):
                return
            self._draw(found, path)
        await self._show(path, turn)

    async def _seek(self, text: str) -> None:
        if text == self._text:
            return
        self._turn += 1
        turn, self._text = self._turn, text
        run, folder = self._context.run.id, self._found.folder
        try:
            found = await self._context.desk.ask(answers.listing, run, folder, text)
        except MlwError:
            return  # it is gone
        if not self._is_over(turn):
            self._draw(found, self._context.asked.get("path", ""))

    def _is_over(self, turn: int) -> bool:
        """Something else was chosen meanwhile, or another tab."""
        return turn != self._turn or self._look.is_deleted

    async def _show(self, path: str, turn: int) -> None:
        """What is to be seen at the right: a file, or what to do."""
        desk, run = self._context.desk, self._context.run.id
        one = _among(self._found, path)
        preview: answers.Preview | str = ""
        try:
            if one is None and path and path != self._found.folder:  # in a folder of very many, it may not be listed
                one = _among(
                    await desk.ask(answers.listing, run, path.rpartition("/")[0], path.rpartition("/")[2]), path
                )
            if one is not None and one.kind == "file" and one.here:
                preview = await desk.ask(answers.preview, run, one.path)
        except UnknownName:
            preview = "This file no longer exists."
        except MlwError as error:
            preview = plain(error.message, 500)
        if self._is_over(turn):
            return
        self._look.clear()
        with self._look:
            if one is None:
                ui.label("Select a file to view it.").classes("mlw-faint")
                return
            self._title(one)
            self._content(one, preview)

    def _content(self, one: answers.Entry, preview: answers.Preview | str) -> None:
        if one.kind != "file":
            to = f" to {plain(one.to, 300)}" if one.to else ""
            ui.label(f"This is a {plain(one.kind, 40)}{to}; mlw does not follow it.").classes("mlw-faint")
        elif not one.here:
            ui.label("This file is not on this machine yet.").classes("mlw-faint")
        elif isinstance(preview, str):
            ui.label(preview).classes("mlw-bad")
        else:
            self._preview(preview)

    def _title(self, one: answers.Entry) -> None:
        with ui.row().classes("mlw-run-browse-head"):
            with ui.element("h2"):
                ui.label(plain(one.path, 300)).classes("mlw-said")
            ui.label(size(one.size)).classes("mlw-faint")
            ui.space()
            if one.kind == "file" and one.here:
                ui.link("Download", self._address(one.path)).props("download").classes("mlw-log-button")
            if not self._context.facts.outside:
                button = ui.button("Save as asset", on_click=lambda: deeds.promote(self._context, one.path))
                button.props("flat dense no-caps")

    def _preview(self, found: answers.Preview) -> None:
        path = found.path
        if found.kind == "image":
            picture = ui.element("img").classes("mlw-run-picture-image")
            picture._props["src"] = full_address(self._address(path))
            picture._props["alt"] = plain(path, 300)
        elif found.kind == "table":
            table(found.titles, found.rows, plain(path, 300))
        elif found.kind == "none":
            ui.label(found.text).classes("mlw-faint")
        else:
            with ui.element("pre").classes("mlw-run-text").props("tabindex=0"):
                ui.label(found.text)
        if found.cut:
            ui.label("Preview truncated.").classes("mlw-faint")

    def _address(self, path: str) -> str:
        return f"{self._context.api}/outputs/file?path={quote(path, safe='')}"


def _among(found: answers.Listing, path: str) -> answers.Entry | None:
    return next((one for one in found.entries if one.path == path and one.kind != "folder"), None)


def _row(one: answers.Entry) -> Row:
    icon = {"folder": "folder", "link": "link"}.get(one.kind, "description")
    note = f"{counted(one.count, 'file')}, {size(one.size)}" if one.kind == "folder" else size(one.size)
    words = (one.logged, "" if one.here else "remote")
    return Row(one.path, plain(one.name, 200), icon, note, tuple(word for word in words if word))


def context_path(context: Context) -> str:
    return "/".join(name for name in context.asked.get("path", "").split("/") if name not in ("", ".", ".."))[:4096]
