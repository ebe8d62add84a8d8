"""The application behind the gate: the HTTP API, and the pages of NiceGUI over the same verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from fastapi import FastAPI
from nicegui import ui

from ..config.project import Project
from ..version import __version__
from .api import routes
from .gate import App
from .pages import register

_RECONNECT = 60.0  # seconds that a page may be away before the server forgets it; its address brings it back anyway


def make(project: Project | None, link: Callable[[], str]) -> App:
    """Everything that the gate lets people to."""
    app = FastAPI(
        title="ML Workbench", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json"
    )
    app.include_router(routes(link), prefix="/api")
    register(project)
    ui.run_with(
        app,
        title="ML Workbench",
        dark=None,
        language="en-US",
        reconnect_timeout=_RECONNECT,
        storage_secret=None,
        show_welcome_message=False,
    )
    return cast("App", app)
