"""All projects: open a folder, create one from a sample, go on with one that is known."""

from __future__ import annotations

from nicegui import ui

from ...report.plain import plain
from ..answers.projects import Card, cards
from ..desk import Desk
from ..parts.empty import empty
from ..parts.frame import frame
from ..parts.newproject import create_dialog, open_dialog
from ..parts.opening import our_page
from ..parts.status import status
from ..parts.when import When


def register(desk: Desk) -> None:
    @our_page("/")
    async def projects() -> None:
        with frame(desk, "Projects", active="Projects"):
            with ui.row().classes("mlw-between"):
                with ui.element("h1"):
                    ui.label("Projects")
                with ui.row():
                    ui.button("Open folder", icon="folder_open", on_click=lambda: open_dialog(desk)).props(
                        "outline no-caps"
                    )
                    ui.button("Create project", icon="add", on_click=lambda: create_dialog(desk)).props(
                        "unelevated no-caps"
                    )
            ProjectList(desk, await desk.ask(cards, desk.projects))


class ProjectList:
    """The cards, and a field to find one among many."""

    def __init__(self, desk: Desk, found: list[Card]) -> None:
        self._desk = desk
        self._found = found
        self._wanted = ""
        if len(found) > 8:
            field = ui.input("Search projects", on_change=lambda event: self._narrow(event.value))
            field.props("outlined dense clearable")
        self._box = ui.element("div").classes("mlw-cards").props("role=list")
        self._show()

    def _narrow(self, text: str | None) -> None:
        self._wanted = (text or "").casefold()
        self._show()

    def _show(self) -> None:
        self._box.clear()
        fitting = [one for one in self._found if self._wanted in f"{one.name} {one.path}".casefold()]
        with self._box:
            for card in fitting:
                self._card(card)
        if not self._found:
            self._first_time()

    def _first_time(self) -> None:
        with self._box:
            empty(
                "science",
                "No projects yet",
                "Create one from a sample, or open a folder with your code. Opening it changes no files.",
                "mlw project create --name demo",
            )

    def _card(self, card: Card) -> None:
        with ui.card().classes("mlw-card mlw-project").props("role=listitem"):
            with ui.row().classes("mlw-between"):
                if card.trouble:
                    ui.label(plain(card.name, 80)).classes("mlw-project-name")
                else:
                    ui.link(plain(card.name, 80), f"/p/{card.key}").classes("mlw-project-name")
                forget = ui.button(icon="close", on_click=lambda: self._forget(card)).props("flat dense round size=sm")
                forget._props["aria-label"] = f"Remove {plain(card.name, 80)} from the list"
                forget.tooltip("Remove from the list; the folder is kept")
            ui.label(plain(str(card.path), 200)).classes("mlw-mono mlw-faint mlw-said mlw-small")
            with ui.row().classes("mlw-project-last"):
                if card.trouble:
                    ui.label(plain(card.trouble, 200)).classes("mlw-bad mlw-said")
                elif card.last is None:
                    ui.label("No runs yet").classes("mlw-faint")
                else:
                    status(card.last.status.value)
                    ui.link(plain(card.last.name or card.last.id, 60), f"/runs/{card.last.id}")
                    When(card.last.spec.created)

    async def _forget(self, card: Card) -> None:
        await self._desk.ask(lambda _: self._desk.projects.forget(card.key))
        self._found = [one for one in self._found if one.key != card.key]
        ui.notify(f"removed {plain(card.name, 80)} from the list; its folder is unchanged")
        self._show()
