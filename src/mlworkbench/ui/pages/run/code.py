"""Code tab: snapshot files, and diffs against another run or the current project."""

from __future__ import annotations

from nicegui import ui

from ....errors import MlwError
from ....report.units import pluralize, size
from ....sanitize import plain
from ...components.empty_state import empty_state
from ...components.file_list import FileList, Row
from ...components.text_table import DiffLines
from ...queries import code as queries
from . import actions
from .page_context import RunPageContext

_MAX_FILES = 500  # maximum number of listed files
_MAX_CHANGES = 100  # maximum number of files listed above a diff


async def show(context: RunPageContext) -> None:
    await CodeTab(context).build()


class CodeTab:
    """Content of the code tab."""

    def __init__(self, context: RunPageContext) -> None:
        self._context = context
        self._selected = ""
        self._request_number = 0

    async def build(self) -> None:
        code = await self._context.backend.call(queries.list_code, self._context.run.id)
        if code.problem:
            empty_state("code_off", "No code saved for this run", code.problem, "mlw submit SCRIPT")
            return
        self._files = code.files
        self._controls(code)
        with ui.element("div").classes("mlw-run-browse"):
            with ui.element("div").classes("mlw-run-browse-list"):
                self._list = FileList(self._open)
                self._more = ui.label().classes("mlw-faint")
            self._preview_box = ui.element("div").classes("mlw-run-browse-look")
        self._draw("")
        against = self._context.query.get("against", "")
        if against:
            await self._compare(against)
        else:
            await self._open(self._context.query.get("file") or self._default_path())

    def _default_path(self) -> str:
        """Return the path of the script or, if there is none, of the first file."""
        entry = self._context.run.spec.entry.name
        names = [file.path for file in self._files]
        return entry if entry in names else names[0] if names else ""

    def _controls(self, code: queries.Code) -> None:
        run = self._context.run
        with ui.row().classes("mlw-run-controls"):
            search = ui.input("Search files").props("outlined dense clearable debounce=200").classes("mlw-run-search")
            search.on_value_change(lambda event: self._draw(str(event.value or "")))
            total = sum(file.size for file in code.files)
            ui.label(f"{pluralize(len(code.files) + code.more, 'file')}, {size(total)}").classes("mlw-faint")
            ui.space()
            ui.button("Changes since this run", on_click=lambda: self._compare("project")).props("flat dense no-caps")
            other = ui.input("Other run ID").props("outlined dense").classes("mlw-run-search")
            other._props["maxlength"] = 200
            other.on("keydown.enter", lambda: self._compare(str(other.value or "")))
            ui.button("Compare", on_click=lambda: self._compare(str(other.value or ""))).props("flat dense no-caps")
            ui.button("Restore", on_click=lambda: actions.restore(self._context)).props("flat dense no-caps")
        if run.spec.git and run.spec.git.dirty:
            message = "The Git repository had uncommitted changes; the snapshot includes them."
            ui.label(message).classes("mlw-faint")

    def _draw(self, text: str) -> None:
        matching = [file for file in self._files if text.lower() in file.path.lower()]
        self._list.show([_row(file) for file in matching[:_MAX_FILES]], self._selected)
        self._more.set_text(f"and {len(matching) - _MAX_FILES} more; search to find them")
        self._more.set_visibility(len(matching) > _MAX_FILES)

    async def _open(self, path: str) -> None:
        if not path:
            return
        number = self._next_request()
        self._selected = path
        self._list.select(path)
        self._context.update_query(file="" if path == self._default_path() else path, against="")
        try:
            content = await self._context.backend.call(queries.read_text, self._context.run.id, path)
        except MlwError as error:
            content = queries.Text(path, None, plain(error.message, 500))
        if self._is_outdated(number):
            return
        self._preview_box.clear()
        with self._preview_box:
            with ui.element("h2"):
                ui.label(plain(path, 300)).classes("mlw-said")
            if content.text is None:
                ui.label(content.problem or "").classes("mlw-faint")
                return
            with ui.element("pre").classes("mlw-run-text").props("tabindex=0"):
                ui.label(content.text)

    async def _compare(self, against: str) -> None:
        if not against.strip():
            return
        backend, run = self._context.backend, self._context.run
        number = self._next_request()
        try:
            if against == "project":
                difference = await backend.call(queries.project_difference, run.id)
            else:
                difference = await backend.call(queries.difference, run.id, against.strip())
        except MlwError as error:
            if not self._is_outdated(number):
                ui.notify(plain(error.message, 300), type="negative", multi_line=True)
            return
        if self._is_outdated(number):
            return
        self._selected = ""
        self._list.select("")
        self._context.update_query(against=against.strip(), file="")
        self._preview_box.clear()
        with self._preview_box:
            self._difference(difference)

    def _difference(self, difference: queries.Difference) -> None:
        title = (
            f"Changes from this run to {difference.against}"
            if difference.is_project
            else f"Changes from {difference.against} to this run"
        )
        with ui.element("h2"):
            ui.label(plain(title, 200))
        if difference.problem:
            ui.label(difference.problem).classes("mlw-faint")
            return
        if not difference.files:
            ui.label("No changes.").classes("mlw-good")
            return
        with ui.element("ul").classes("mlw-run-changes").props("tabindex=0 aria-label='Changed files'"):
            for path, change in difference.files[:_MAX_CHANGES]:
                with ui.element("li"):
                    ui.label(f"{change}: {plain(path, 300)}")
        if len(difference.files) > _MAX_CHANGES:
            ui.label(f"and {len(difference.files) - _MAX_CHANGES} more").classes("mlw-faint")
        DiffLines("Difference", difference.lines)

    def _next_request(self) -> int:
        self._request_number += 1
        return self._request_number

    def _is_outdated(self, number: int) -> bool:
        """Return whether the user has selected something else or left the tab."""
        return number != self._request_number or self._preview_box.is_deleted


def _row(file: queries.Source) -> Row:
    note = f"→ {plain(file.to, 60)}" if file.to else size(file.size)
    return Row(file.path, plain(file.path, 300), "link" if file.to else "description", note)
