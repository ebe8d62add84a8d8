"""One run: how it stands, its log, what it measured, its files, its environment, its code."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from ....errors import MlwError
from ....history.store import Ambiguous
from ....report.plain import plain
from ...answers import run as answers
from ...answers.projects import key_of
from ...desk import Desk
from ...parts.empty import empty
from ...parts.frame import Here, frame, here
from ...parts.opening import our_page
from .page import RunPage


def register(desk: Desk) -> None:
    @our_page("/runs/{name}")
    async def run(name: str, request: Request) -> None:
        await _show(desk, name, request)


async def _show(desk: Desk, name: str, request: Request) -> None:
    try:
        found = await desk.ask(answers.look, name)
    except MlwError as error:
        title = "Ambiguous run ID" if isinstance(error, Ambiguous) else "Run not found"
        with frame(desk, title, active="All runs"):
            with ui.element("h1"):
                ui.label(title)
            empty("search_off", plain(error.message, 300), plain(error.hint or "", 300), "mlw history list")
        return
    where = await desk.ask(lambda _: _project(desk, found))
    title = found.run.name or found.run.id
    with frame(desk, title, where, active="Runs" if where else "All runs", wide=True):
        await RunPage(desk, found, where, dict(request.query_params)).build()


def _project(desk: Desk, found: answers.Facts) -> Here | None:
    """Where the run came from, if that was opened here and is still the same project."""
    try:
        where = here(desk, key_of(found.project))
    except (MlwError, OSError):
        return None
    return where if where.project.id == found.run.spec.project_id else None
