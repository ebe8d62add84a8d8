"""Frame of every page: header, navigation on the left, and jobs pane on the right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nicegui import Client, background_tasks, ui

from ...config.project_folder import Project
from ...sanitize import plain
from ..backend import Backend
from .error_notice import notify_error
from .jobs_pane import jobs_pane
from .logout import LogoutButton
from .page_links import add_head
from .session_expired import SessionExpiredNotice
from .theme_switch import ThemeSwitch

_GLOBAL_LINKS = (("folder_special", "Projects", "/"), ("history", "All runs", "/runs"))
_PROJECT_LINKS = (
    ("space_dashboard", "Dashboard", ""),
    ("folder_open", "Files", "/files"),
    ("history", "Runs", "/runs"),
    ("dns", "Targets", "/targets"),
    ("terminal", "Terminal", "/terminal"),
)
FIRST_RESPONSE_DELAY = 0.4  # seconds until an unfinished page is shown
PRESENCE_INTERVAL = 5.0  # seconds between reports that a page is open


@dataclass(frozen=True)
class ProjectScope:
    """The project that a page belongs to."""

    key: str
    project: Project

    @property
    def address(self) -> str:
        return f"/p/{self.key}"


def open_scope(backend: Backend, key: str) -> ProjectScope:
    """Open a project.

    Raise ``MlwError`` if it no longer exists. This reads files, so call it through ``backend.call``.
    """
    return ProjectScope(key, backend.projects.open(key))


@contextmanager
def frame(
    backend: Backend, title: str, scope: ProjectScope | None = None, *, active: str = "", wide: bool = False
) -> Iterator[None]:
    """Draw the frame around a page. ``active`` is the label of its navigation link."""
    add_head()
    ui.page_title(f"{plain(title, 80)} – ML Workbench")
    ui.colors(primary="#2457a7", secondary="#4f6b8f", accent="#8a4fbd", positive="#1b7a43", negative="#b3261e")
    ui.on_exception(notify_error)  # show errors of event handlers
    backend.run_poller.heartbeat()
    ui.timer(PRESENCE_INTERVAL, backend.run_poller.heartbeat, immediate=False)
    _show_soon()
    pane = ui.right_drawer(value=False, bordered=True).props("width=340").classes("mlw-jobs")
    # Quasar opens the drawer if there is room. NiceGUI would query the browser, which fails if the browser is slow.
    rail = (
        ui.left_drawer(value=False, bordered=True).props("show-if-above width=168 breakpoint=700").classes("mlw-rail")
    )
    with ui.header().classes("mlw-bar"):
        ui.button(icon="menu", on_click=rail.toggle).props('flat dense round color=white aria-label="Menu"').classes(
            "mlw-menu"
        )
        ui.link("ML Workbench", "/").classes("mlw-brand")
        if scope is not None:
            ui.icon("chevron_right").props("aria-hidden=true")
            ui.link(plain(scope.project.name, 60), scope.address).classes("mlw-crumb")
        ui.space()
        ui.button("Jobs", icon="directions_run", on_click=pane.toggle).props("flat dense no-caps color=white")
        ThemeSwitch()
        LogoutButton()
    SessionExpiredNotice()
    with rail:
        _rail(scope, active)
    with pane:
        jobs_pane(backend, scope)
    with ui.element("div").classes("mlw-main mlw-wide" if wide else "mlw-main"):  # not <main>, which NiceGUI adds
        yield


def _show_soon() -> None:
    """Send a slow page before it is complete. A page that is built quickly is sent as a whole.

    NiceGUI sends the page as soon as something waits for the client to connect. This includes timers
    that start immediately.
    """

    async def connect(client: Client) -> None:
        await asyncio.sleep(FIRST_RESPONSE_DELAY)
        await client.connected()

    background_tasks.create(connect(ui.context.client), name="mlw-show-soon")


def _rail(scope: ProjectScope | None, active: str) -> None:
    with ui.element("nav").props('aria-label="Navigation"').classes("mlw-nav"):
        for icon, label, address in _GLOBAL_LINKS:
            _rail_link(icon, label, address, active)
        if scope is not None:
            ui.label(plain(scope.project.name, 40)).classes("mlw-nav-title")
            for icon, label, tail in _PROJECT_LINKS:
                _rail_link(icon, label, scope.address + tail, active)


def _rail_link(icon: str, label: str, address: str, active: str) -> None:
    with ui.link(target=address).classes("mlw-place" + (" mlw-active" if label == active else "")) as link:
        ui.icon(icon).props("aria-hidden=true")
        ui.label(label)
    if label == active:
        link.props("aria-current=page")
