"""Command prompts in the folder of a project. They stay when the page is left, until they are closed."""

from __future__ import annotations

from urllib.parse import urlencode

from nicegui import ui

from ..answers.prompt import prompt
from ..desk import Desk
from ..parts.addresses import show_address
from ..parts.empty import empty
from ..parts.frame import Here, frame
from ..parts.opening import project_page
from ..parts.terminal import TerminalView
from ..parts.trouble import telling
from ..shells import AVAILABLE, Shell


def register(desk: Desk) -> None:
    @project_page(desk, "/terminal", "Terminal")
    async def terminal(where: Here, t: str = "") -> None:
        with frame(desk, f"Terminal of {where.project.name}", where, active="Terminal", wide=True):
            view = TerminalPage(desk, where)
        if AVAILABLE:
            # Only once the page is open: to be asked for an address alone starts nothing.
            await ui.context.client.connected()
            await view.begin(t)


class TerminalPage:
    """The terminals of a project, one of them in sight."""

    def __init__(self, desk: Desk, where: Here) -> None:
        self._desk = desk
        self._where = where
        self._shell: Shell | None = None
        with ui.row().classes("mlw-terminal-head"):
            with ui.element("h1"):
                ui.label("Terminal")
            self._tabs = ui.row().classes("mlw-terminal-tabs").props('role=group aria-label="Terminals"')
            ui.space()
            if AVAILABLE:
                ui.button("New terminal", icon="add", on_click=self.new).props("flat dense no-caps")
                ui.button("Close", icon="close", on_click=self.close).props("flat dense no-caps")
        self._box = ui.element("div").classes("mlw-terminal-box")
        if not AVAILABLE:
            with self._box:
                words = "On Windows, open a system terminal in the project folder."
                empty("terminal", "Terminal not available", words)

    async def begin(self, wanted: str) -> None:
        """With the one of the address, else the last one, else a new one."""
        known = self._desk.shells.of(self._where.key)
        found = self._desk.shells.get(self._where.key, wanted) or (known[-1] if known else None)
        if found is not None:
            self._look_at(found)
        else:
            await self.new()

    async def new(self) -> None:
        where = self._where
        with telling():
            first = await self._desk.ask(lambda _: prompt(where.project, self._desk.paths))
            shells, root = self._desk.shells, where.project.root
            self._look_at(
                await shells.start(where.key, root, first.folders, "".join(f"{line}\r\n" for line in first.lines))
            )

    async def close(self) -> None:
        if self._shell is None:
            return
        self._desk.shells.end(self._shell)
        known = self._desk.shells.of(self._where.key)
        if known:
            self._look_at(known[-1])
            return
        self._shell = None
        self._box.clear()
        self._tabs.clear()
        show_address(f"{self._where.address}/terminal")
        with self._box:
            empty("terminal", "No open terminals", "Click New terminal to open a shell in the project folder.")

    def _look_at(self, shell: Shell) -> None:
        self._shell = shell
        show_address(f"{self._where.address}/terminal?" + urlencode({"t": shell.id}))
        self._box.clear()
        with self._box:
            TerminalView(shell)
        self._tabs.clear()
        with self._tabs:
            for one in self._desk.shells.of(self._where.key):
                words = f"{one.number}" + (" (ended)" if one.ended else "")
                button = ui.button(words, on_click=lambda one=one: self._look_at(one)).props("flat dense no-caps")
                button._props["aria-pressed"] = "true" if one is shell else "false"
                if one is shell:
                    button.classes("mlw-terminal-here")
