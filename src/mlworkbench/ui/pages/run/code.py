"""The code that a run ran: its files, and what differs from another run or from the project now."""

from __future__ import annotations

from nicegui import ui

from ....errors import MlwError
from ....report.plain import plain
from ....report.units import counted, size
from ...answers import code as answers
from ...parts.empty import empty
from ...parts.filelist import FileList, Row
from ...parts.sheet import DiffLines
from . import deeds
from .context import Context

_SHOWN = 500  # files in the list
_CHANGED = 100  # files that are named above a difference


async def show(context: Context) -> None:
    await Code(context).build()


class Code:
    """The tab of one page."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shown = ""
        self._turn = 0

    async def build(self) -> None:
        found = await self._context.desk.ask(answers.tree, self._context.run.id)
        if found.problem:
            empty("code_off", "No code saved for this run", found.problem, "mlw submit SCRIPT")
            return
        self._files = found.files
        self._controls(found)
        with ui.element("div").classes("mlw-run-browse"):
            with ui.element("div").classes("mlw-run-browse-list"):
                self._list = FileList(self._open)
                self._more = ui.label().classes("mlw-faint")
            self._look = ui.element("div").classes("mlw-run-browse-look")
        self._draw("")
        against = self._context.asked.get("against", "")
        if against:
            await self._compare(against)
        else:
            await self._open(self._context.asked.get("file") or self._first())

    def _first(self) -> str:
        """The script, if it is there."""
        entry = self._context.run.spec.entry.name
        names = [one.path for one in self._files]
        return entry if entry in names else names[0] if names else ""

    def _controls(self, found: answers.Code) -> None:
        run = self._context.run
        with ui.row().classes("mlw-run-controls"):
            search = ui.input("Search files").props("outlined dense clearable debounce=200").classes("mlw-run-search")
            search.on_value_change(lambda event: self._draw(str(event.value or "")))
            total = sum(one.size for one in found.files)
            ui.label(f"{counted(len(found.files) + found.more, 'file')}, {size(total)}").classes("mlw-faint")
            ui.space()
            ui.button("Changes since this run", on_click=lambda: self._compare("project")).props("flat dense no-caps")
            other = ui.input("Other run ID").props("outlined dense").classes("mlw-run-search")
            other._props["maxlength"] = 200
            other.on("keydown.enter", lambda: self._compare(str(other.value or "")))
            ui.button("Compare", on_click=lambda: self._compare(str(other.value or ""))).props("flat dense no-caps")
            ui.button("Restore", on_click=lambda: deeds.restore(self._context)).props("flat dense no-caps")
        if run.spec.git and run.spec.git.dirty:
            words = "The Git repository had uncommitted changes; the snapshot includes them."
            ui.label(words).classes("mlw-faint")

    def _draw(self, text: str) -> None:
        fit = [one for one in self._files if text.lower() in one.path.lower()]
        self._list.show([_row(one) for one in fit[:_SHOWN]], self._shown)
        self._more.set_text(f"and {len(fit) - _SHOWN} more; search to find them")
        self._more.set_visibility(len(fit) > _SHOWN)

    async def _open(self, path: str) -> None:
        if not path:
            return
        turn = self._begin()
        self._shown = path
        self._list.choose(path)
        self._context.keep(file="" if path == self._first() else path, against="")
        try:
            found = await self._context.desk.ask(answers.text, self._context.run.id, path)
        except MlwError as error:
            found = answers.Text(path, None, plain(error.message, 500))
        if self._is_over(turn):
            return
        self._look.clear()
        with self._look:
            with ui.element("h2"):
                ui.label(plain(path, 300)).classes("mlw-said")
            if found.text is None:
                ui.label(found.problem or "").classes("mlw-faint")
                return
            with ui.element("pre").classes("mlw-run-text").props("tabindex=0"):
                ui.label(found.text)

    async def _compare(self, against: str) -> None:
        if not against.strip():
            return
        desk, run = self._context.desk, self._context.run
        turn = self._begin()
        try:
            if against == "project":
                found = await desk.ask(answers.since, run.id)
            else:
                found = await desk.ask(answers.difference, run.id, against.strip())
        except MlwError as error:
            if not self._is_over(turn):
                ui.notify(plain(error.message, 300), type="negative", multi_line=True)
            return
        if self._is_over(turn):
            return
        self._shown = ""
        self._list.choose("")
        self._context.keep(against=against.strip(), file="")
        self._look.clear()
        with self._look:
            self._difference(found)

    def _difference(self, found: answers.Difference) -> None:
        title = (
            f"Changes from this run to {found.against}"
            if found.is_project
            else f"Changes from {found.against} to this run"
        )
        with ui.element("h2"):
            ui.label(plain(title, 200))
        if found.problem:
            ui.label(found.problem).classes("mlw-faint")
            return
        if not found.files:
            ui.label("No changes.").classes("mlw-good")
            return
        with ui.element("ul").classes("mlw-run-changes").props("tabindex=0 aria-label='Changed files'"):
            for path, change in found.files[:_CHANGED]:
                with ui.element("li"):
                    ui.label(f"{change}: {plain(path, 300)}")
        if len(found.files) > _CHANGED:
            ui.label(f"and {len(found.files) - _CHANGED} more").classes("mlw-faint")
        DiffLines("Difference", found.lines)

    def _begin(self) -> int:
        self._turn += 1
        return self._turn

    def _is_over(self, turn: int) -> bool:
        """Something else was chosen meanwhile, or another tab."""
        return turn != self._turn or self._look.is_deleted


def _row(one: answers.Source) -> Row:
    note = f"→ {plain(one.to, 60)}" if one.to else size(one.size)
    return Row(one.path, plain(one.path, 300), "link" if one.to else "description", note)
