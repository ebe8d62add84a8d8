"""Terminals in the project folder. They keep running after the user leaves the page, until closed."""

from __future__ import annotations

from urllib.parse import urlencode

from nicegui import ui

from ..backend import Backend
from ..components.empty_state import empty_state
from ..components.error_notice import report_errors
from ..components.page_frame import ProjectScope, frame
from ..components.page_links import show_address
from ..components.page_setup import project_page
from ..components.terminal_view import TerminalView
from ..queries.shell_startup import prompt
from ..shell_sessions import AVAILABLE, Shell


def register(backend: Backend) -> None:
    @project_page(backend, "/terminal", "Terminal")
    async def terminal(scope: ProjectScope, t: str = "") -> None:
        with frame(backend, f"Terminal of {scope.project.name}", scope, active="Terminal", wide=True):
            view = TerminalPage(backend, scope)
        if AVAILABLE:
            # Start a shell only after the page has connected; a plain GET request starts nothing.
            await ui.context.client.connected()
            await view.start(t)


class TerminalPage:
    """Terminals of a project, one of which is visible."""

    def __init__(self, backend: Backend, scope: ProjectScope) -> None:
        self._backend = backend
        self._scope = scope
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
                text = "On Windows, open a system terminal in the project folder."
                empty_state("terminal", "Terminal not available", text)

    async def start(self, requested: str) -> None:
        """Show the terminal that the URL names or else the last one. If there is none, start one."""
        shells = self._backend.shells.for_project(self._scope.key)
        shell = self._backend.shells.get(self._scope.key, requested) or (shells[-1] if shells else None)
        if shell is not None:
            self._select(shell)
        else:
            await self.new()

    async def new(self) -> None:
        scope = self._scope
        with report_errors():
            shell_prompt = await self._backend.call(lambda _: prompt(scope.project, self._backend.paths))
            shells, root = self._backend.shells, scope.project.root
            self._select(
                await shells.start(
                    scope.key, root, shell_prompt.folders, "".join(f"{line}\r\n" for line in shell_prompt.lines)
                )
            )

    async def close(self) -> None:
        if self._shell is None:
            return
        self._backend.shells.end(self._shell)
        shells = self._backend.shells.for_project(self._scope.key)
        if shells:
            self._select(shells[-1])
            return
        self._shell = None
        self._box.clear()
        self._tabs.clear()
        show_address(f"{self._scope.address}/terminal")
        with self._box:
            empty_state("terminal", "No open terminals", "Click New terminal to open a shell in the project folder.")

    def _select(self, shell: Shell) -> None:
        self._shell = shell
        show_address(f"{self._scope.address}/terminal?" + urlencode({"t": shell.id}))
        self._box.clear()
        with self._box:
            TerminalView(shell)
        self._tabs.clear()
        with self._tabs:
            for other in self._backend.shells.for_project(self._scope.key):
                label = f"{other.number}" + (" (ended)" if other.ended else "")
                button = ui.button(label, on_click=lambda other=other: self._select(other)).props("flat dense no-caps")
                button._props["aria-pressed"] = "true" if other is shell else "false"
                if other is shell:
                    button.classes("mlw-terminal-here")
