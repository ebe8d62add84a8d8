"""What every page has: the bar above, the rail at the left, the jobs at the right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nicegui import Client, background_tasks, ui

from ...config.project import Project
from ...report.plain import plain
from ..desk import Desk
from .addresses import add_head
from .door import Doorkeeper
from .jobs import jobs
from .leave import Leave
from .theme import Theme
from .trouble import tell

_EVERYWHERE = (("folder_special", "Projects", "/"), ("history", "All runs", "/runs"))
_IN_PROJECT = (
    ("space_dashboard", "Dashboard", ""),
    ("folder_open", "Files", "/files"),
    ("history", "Runs", "/runs"),
    ("dns", "Targets", "/targets"),
    ("terminal", "Terminal", "/terminal"),
)
WHOLE = 0.4  # seconds until what a page has so far is shown
ATTENTION = 5.0  # seconds between two times that an open page says that somebody looks on


@dataclass(frozen=True)
class Here:
    """The project that a page is about."""

    key: str
    project: Project

    @property
    def address(self) -> str:
        return f"/p/{self.key}"


def here(desk: Desk, key: str) -> Here:
    """``MlwError`` if there is no such project any more. Reads files: ask the desk for it."""
    return Here(key, desk.projects.open(key))


@contextmanager
def frame(desk: Desk, title: str, where: Here | None = None, *, active: str = "", wide: bool = False) -> Iterator[None]:
    """``active``: the word in the rail that this page belongs to."""
    add_head()
    ui.page_title(f"{plain(title, 80)} – ML Workbench")
    ui.colors(primary="#2457a7", secondary="#4f6b8f", accent="#8a4fbd", positive="#1b7a43", negative="#b3261e")
    ui.on_exception(tell)  # of what a click set off
    desk.live.attend()
    ui.timer(ATTENTION, desk.live.attend, immediate=False)
    _show_soon()
    pane = ui.right_drawer(value=False, bordered=True).props("width=340").classes("mlw-jobs")
    # Quasar opens it where there is room; NiceGUI would ask the browser, and a slow one would end in an error.
    rail = (
        ui.left_drawer(value=False, bordered=True).props("show-if-above width=168 breakpoint=700").classes("mlw-rail")
    )
    with ui.header().classes("mlw-bar"):
        ui.button(icon="menu", on_click=rail.toggle).props('flat dense round color=white aria-label="Menu"').classes(
            "mlw-menu"
        )
        ui.link("ML Workbench", "/").classes("mlw-brand")
        if where is not None:
            ui.icon("chevron_right").props("aria-hidden=true")
            ui.link(plain(where.project.name, 60), where.address).classes("mlw-crumb")
        ui.space()
        ui.button("Jobs", icon="directions_run", on_click=pane.toggle).props("flat dense no-caps color=white")
        Theme()
        Leave()
    Doorkeeper()
    with rail:
        _rail(where, active)
    with pane:
        jobs(desk, where)
    with ui.element("div").classes("mlw-main mlw-wide" if wide else "mlw-main"):  # the page is a main element itself
        yield


def _show_soon() -> None:
    """A page that is made quickly comes whole, which is quickest; of a slow one comes at once what there is.

    NiceGUI answers once somebody waits for the browser, and so does a timer that begins immediately.
    """

    async def connect(client: Client) -> None:
        await asyncio.sleep(WHOLE)
        await client.connected()

    background_tasks.create(connect(ui.context.client), name="mlw-show-soon")


def _rail(where: Here | None, active: str) -> None:
    with ui.element("nav").props('aria-label="Navigation"').classes("mlw-nav"):
        for icon, word, address in _EVERYWHERE:
            _place(icon, word, address, active)
        if where is not None:
            ui.label(plain(where.project.name, 40)).classes("mlw-nav-title")
            for icon, word, tail in _IN_PROJECT:
                _place(icon, word, where.address + tail, active)


def _place(icon: str, word: str, address: str, active: str) -> None:
    with ui.link(target=address).classes("mlw-place" + (" mlw-active" if word == active else "")) as link:
        ui.icon(icon).props("aria-hidden=true")
        ui.label(word)
    if word == active:
        link.props("aria-current=page")
