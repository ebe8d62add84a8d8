"""The application behind the gate: the HTTP API, and the pages of NiceGUI over the same desk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from ..paths import UserPaths
from ..version import __version__
from . import api, pages
from .desk import Desk
from .gate import App

_RECONNECT = 60.0  # seconds that a page may be away before the server forgets it; its address brings it back anyway
_STATIC = Path(__file__).parent / "static"


def make(paths: UserPaths, opened: Path | None, link: Callable[[], str]) -> App:
    """Everything that the gate lets people to. ``opened``: the project in whose folder mlw ui was typed."""
    desk = Desk(paths)
    if opened is not None:
        desk.projects.remember(opened)
    app = FastAPI(
        title="ML Workbench",
        version=__version__,
        description="HTTP API of `mlw ui`. Send `Authorization: Bearer TOKEN` with the token from ui/server.json.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        root_path_in_servers=False,  # the path is a secret of browsers
    )
    api.install(app, desk, link)
    nicegui_app.add_static_files("/static", _STATIC)
    nicegui_app.on_startup(desk.open)
    nicegui_app.on_shutdown(desk.close)
    pages.register(desk)
    ui.run_with(
        app,
        title="ML Workbench",
        dark=None,
        language="en-US",
        tailwind=False,  # its script takes 0.1 s of every page, and we have our own style sheets
        reconnect_timeout=_RECONNECT,
        storage_secret=None,
        show_welcome_message=False,
    )
    return cast("App", app)
