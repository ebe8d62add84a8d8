"""Addresses that lead nowhere, and pages that failed. Words of ours; what went wrong inside is told to the log only."""

from __future__ import annotations

from fastapi import Request, Response
from nicegui import Client, ui
from nicegui import app as nicegui_app

from ..desk import Desk
from ..parts.empty import empty
from ..parts.frame import frame
from ..parts.trouble import in_words


def register(desk: Desk) -> None:
    async def lost(request: Request, error: Exception) -> Response:
        with Client(ui.page(""), request=request) as client, frame(desk, "Page not found"):
            _heading("Page not found")
            empty("explore_off", "There is no page at this address.", "Use the navigation on the left.")
        return client.build_response(request, 404)

    def failed(error: Exception) -> None:
        words, hint = in_words(error)
        with frame(desk, "Error"):
            _heading("Error")
            empty("error_outline", words, hint or "Reload the page, or use the navigation on the left.")

    nicegui_app.add_exception_handler(404, lost)
    nicegui_app.on_page_exception(failed)


def _heading(words: str) -> None:
    with ui.element("h1"):
        ui.label(words)
