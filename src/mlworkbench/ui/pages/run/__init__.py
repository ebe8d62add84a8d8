"""Page of a run."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from ....errors import MlwError
from ....history.store import AmbiguousName
from ....sanitize import plain
from ...backend import Backend
from ...components.empty_state import empty_state
from ...components.page_frame import ProjectScope, frame, open_scope
from ...components.page_setup import app_page
from ...queries import run as queries
from ...queries.projects import key_of
from .page import RunPage


def register(backend: Backend) -> None:
    @app_page("/runs/{name}")
    async def run(name: str, request: Request) -> None:
        await _show(backend, name, request)


async def _show(backend: Backend, name: str, request: Request) -> None:
    try:
        facts = await backend.call(queries.load_run, name)
    except MlwError as error:
        title = "Ambiguous run ID" if isinstance(error, AmbiguousName) else "Run not found"
        with frame(backend, title, active="All runs"):
            with ui.element("h1"):
                ui.label(title)
            empty_state("search_off", plain(error.message, 300), plain(error.hint or "", 300), "mlw history list")
        return
    scope = await backend.call(lambda _: _project(backend, facts))
    title = facts.run.name or facts.run.id
    with frame(backend, title, scope, active="Runs" if scope else "All runs", wide=True):
        await RunPage(backend, facts, scope, dict(request.query_params)).build()


def _project(backend: Backend, facts: queries.RunFacts) -> ProjectScope | None:
    """Return the run's project, if it is in the project list and its ID has not changed."""
    try:
        scope = open_scope(backend, key_of(facts.project))
    except (MlwError, OSError):
        return None
    return scope if scope.project.id == facts.run.spec.project_id else None
