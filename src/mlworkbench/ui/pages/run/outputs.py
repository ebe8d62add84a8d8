"""The outputs of a run: folders and files, a look into one of them, download, keep."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ....errors import MlwError, UnknownName
from ....report.plain import plain
from ....report.units import counted, size
from ...answers import outputs as answers
from ...parts.empty import empty
from ...parts.facts import table
from . import deeds
from .context import Context


async def show(context: Context) -> None:
    await Outputs(context).build()


class Outputs:
    """The tab of one page."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def build(self) -> None:
        path = context_path(self._context)
        found = await self._listing(path)
        if not found.count and not found.folder:
            self._nothing()
            return
        if not found.home:
            self._elsewhere()
        with ui.element("div").classes("mlw-run-browse"):
            self._list = ui.element("div").classes("mlw-run-browse-list")
            self._look = ui.element("div").classes("mlw-run-browse-look")
        self._draw(found, path)
        await self._show(path, found)

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
        empty("folder_open", title, "What a script writes into the folder outputs/ is kept, and shown here.")

    def _elsewhere(self) -> None:
        run = self._context.run
        with ui.row().classes("mlw-run-note"):
            ui.icon("cloud").props("aria-hidden=true")
            ui.label(f"Not all of them are on this machine; they are on {plain(run.spec.compute.name, 80)}.")
            if run.status.final:
                ui.button("Fetch them", on_click=lambda: deeds.download(self._context)).props("flat dense no-caps")

    def _draw(self, found: answers.Listing, chosen: str) -> None:
        self._list.clear()
        with self._list:
            with ui.row().classes("mlw-run-browse-head"):
                self._crumbs(found.folder)
                ui.space()
                ui.label(f"{counted(found.count, 'file')}, {size(found.size)}").classes("mlw-faint")
            with ui.element("ul").classes("mlw-run-browse-files"):
                for one in found.entries:
                    self._entry(one, one.path == chosen)
            if found.more:
                ui.label("There are more than are listed here: mlw history download has them all.").classes("mlw-faint")

    def _crumbs(self, folder: str) -> None:
        names = folder.split("/") if folder else []
        with ui.element("nav").props('aria-label="Folder"').classes("mlw-run-crumbs"):
            self._crumb("outputs", "")
            for at, name in enumerate(names):
                ui.label("/").props("aria-hidden=true")
                self._crumb(name, "/".join(names[: at + 1]))

    def _crumb(self, name: str, path: str) -> None:
        ui.button(plain(name, 60), on_click=lambda: self._go(path)).props("flat dense no-caps padding='0 2px'")

    def _entry(self, one: answers.Entry, chosen: bool) -> None:
        icon = {"folder": "folder", "link": "link"}.get(one.kind, "description")
        with ui.element("li").classes("mlw-run-browse-file" + (" mlw-active" if chosen else "")):
            with ui.element("button").props("type=button").classes("mlw-run-browse-name") as button:
                ui.icon(icon).props("aria-hidden=true")
                ui.label(plain(one.name, 200)).classes("mlw-said")
                if one.logged:
                    ui.label(one.logged).classes("mlw-run-word")
                if not one.here:
                    ui.label("elsewhere").classes("mlw-run-word")
            button.on("click", lambda: self._go(one.path))
            if chosen:
                button.props("aria-current=true")
            words = f"{counted(one.count, 'file')}, {size(one.size)}" if one.kind == "folder" else size(one.size)
            ui.label(words).classes("mlw-faint mlw-run-browse-size")

    async def _go(self, path: str) -> None:
        self._context.keep(path=path)
        try:
            found = await self._listing(path)
        except MlwError as error:
            found = answers.Listing("", [], 0, 0, True, False)
            ui.notify(plain(error.message, 300), type="negative")
        self._draw(found, path)
        await self._show(path, found)

    async def _show(self, path: str, found: answers.Listing) -> None:
        """What is to be seen at the right: a file, or what to do."""
        one = next((entry for entry in found.entries if entry.path == path and entry.kind != "folder"), None)
        self._look.clear()
        with self._look:
            if one is None:
                ui.label("Choose a file to look into it.").classes("mlw-faint")
                return
            self._title(one)
            if one.kind != "file":
                to = f" to {plain(one.to, 300)}" if one.to else ""
                ui.label(f"This is a {plain(one.kind, 40)}{to}; it is not followed.").classes("mlw-faint")
            elif not one.here:
                ui.label("It is not on this machine yet.").classes("mlw-faint")
            else:
                await self._preview(one.path)

    def _title(self, one: answers.Entry) -> None:
        with ui.row().classes("mlw-run-browse-head"):
            with ui.element("h2"):
                ui.label(plain(one.path, 300)).classes("mlw-said")
            ui.label(size(one.size)).classes("mlw-faint")
            ui.space()
            if one.kind == "file" and one.here:
                ui.link("Download", self._address(one.path)).props("download").classes("mlw-log-button")
            if not self._context.facts.outside:
                button = ui.button("Keep as an asset", on_click=lambda: deeds.promote(self._context, one.path))
                button.props("flat dense no-caps")

    async def _preview(self, path: str) -> None:
        try:
            found = await self._context.desk.ask(answers.preview, self._context.run.id, path)
        except MlwError as error:
            ui.label(plain(error.message, 500)).classes("mlw-bad")
            return
        if found.kind == "image":
            picture = ui.element("img").classes("mlw-run-picture-image")
            picture._props["src"] = self._address(path)
            picture._props["alt"] = plain(path, 300)
        elif found.kind == "table":
            table(found.titles, found.rows, plain(path, 300))
        elif found.kind == "none":
            ui.label(found.text).classes("mlw-faint")
        else:
            with ui.element("pre").classes("mlw-run-text").props("tabindex=0"):
                ui.label(found.text)
        if found.cut:
            ui.label("This is only its beginning.").classes("mlw-faint")

    def _address(self, path: str) -> str:
        return f"{self._context.api}/outputs/file?path={quote(path, safe='')}"


def context_path(context: Context) -> str:
    return "/".join(name for name in context.asked.get("path", "").split("/") if name not in ("", ".", ".."))[:4096]
