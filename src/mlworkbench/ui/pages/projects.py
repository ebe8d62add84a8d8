"""Projects page: open a folder, create a project from a sample, or open a known project."""

from __future__ import annotations

from nicegui import ui

from ...sanitize import plain
from ..backend import Backend
from ..components.empty_state import empty_state
from ..components.page_frame import frame
from ..components.page_setup import app_page
from ..components.project_dialogs import create_dialog, open_dialog
from ..components.status_badge import status_badge
from ..components.timestamp import Timestamp
from ..queries.projects import Card, cards


def register(backend: Backend) -> None:
    @app_page("/")
    async def projects() -> None:
        with frame(backend, "Projects", active="Projects"):
            with ui.row().classes("mlw-between"):
                with ui.element("h1"):
                    ui.label("Projects")
                with ui.row():
                    ui.button("Open folder", icon="folder_open", on_click=lambda: open_dialog(backend)).props(
                        "outline no-caps"
                    )
                    ui.button("Create project", icon="add", on_click=lambda: create_dialog(backend)).props(
                        "unelevated no-caps"
                    )
            ProjectList(backend, await backend.call(cards, backend.projects))


class ProjectList:
    """Project cards, with a search field if there are many."""

    def __init__(self, backend: Backend, cards: list[Card]) -> None:
        self._backend = backend
        self._cards = cards
        self._filter = ""
        if len(cards) > 8:
            field = ui.input("Search projects", on_change=lambda event: self._set_filter(event.value))
            field.props("outlined dense clearable")
        self._box = ui.element("div").classes("mlw-cards").props("role=list")
        self._show()

    def _set_filter(self, text: str | None) -> None:
        self._filter = (text or "").casefold()
        self._show()

    def _show(self) -> None:
        self._box.clear()
        matching = [card for card in self._cards if self._filter in f"{card.name} {card.path}".casefold()]
        with self._box:
            for card in matching:
                self._card(card)
        if not self._cards:
            self._show_empty()

    def _show_empty(self) -> None:
        with self._box:
            empty_state(
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
                    status_badge(card.last.status.value)
                    ui.link(plain(card.last.name or card.last.id, 60), f"/runs/{card.last.id}")
                    Timestamp(card.last.spec.created)

    async def _forget(self, card: Card) -> None:
        await self._backend.call(lambda _: self._backend.projects.forget(card.key))
        self._cards = [other for other in self._cards if other.key != card.key]
        ui.notify(f"removed {plain(card.name, 80)} from the list; its folder is unchanged")
        self._show()
