"""Web application that combines the HTTP API and the NiceGUI pages on top of the backend."""

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
from .auth_middleware import App
from .backend import Backend

_RECONNECT = 60.0  # seconds until the server discards a disconnected page; reloading its URL restores it
_STATIC = Path(__file__).parent / "static"


def create_app(paths: UserPaths, project_root: Path | None, link: Callable[[], str]) -> App:
    """Create the application that ``AuthMiddleware`` protects.

    ``project_root``: project folder in which ``mlw ui`` was started. ``link``: creates a login link.
    """
    backend = Backend(paths)
    if project_root is not None:
        backend.projects.add(project_root)
    app = FastAPI(
        title="ML Workbench",
        version=__version__,
        description="HTTP API of `mlw ui`. Send `Authorization: Bearer TOKEN` with the token from ui/server.json.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        root_path_in_servers=False,  # the root path is secret and must not appear in the schema
    )
    api.install(app, backend, link)
    nicegui_app.add_static_files("/static", _STATIC)
    nicegui_app.on_startup(backend.open)
    nicegui_app.on_shutdown(backend.close)
    pages.register(backend)
    ui.run_with(
        app,
        title="ML Workbench",
        dark=None,
        language="en-US",
        tailwind=False,  # its script adds 0.1 s to every page, and mlw has its own style sheets
        reconnect_timeout=_RECONNECT,
        storage_secret=None,
        show_welcome_message=False,
    )
    return cast("App", app)
