"""Error pages: unknown URLs and internal errors. Details of internal errors are only logged."""

from __future__ import annotations

from fastapi import Request, Response
from nicegui import Client, ui
from nicegui import app as nicegui_app

from ..backend import Backend
from ..components.empty_state import empty_state
from ..components.error_notice import describe_error
from ..components.page_frame import frame


def register(backend: Backend) -> None:
    async def show_not_found(request: Request, error: Exception) -> Response:
        with Client(ui.page(""), request=request) as client, frame(backend, "Page not found"):
            _heading("Page not found")
            empty_state("explore_off", "There is no page at this address.", "Use the navigation on the left.")
        return client.build_response(request, 404)

    def show_failure(error: Exception) -> None:
        message, hint = describe_error(error)
        with frame(backend, "Error"):
            _heading("Error")
            empty_state("error_outline", message, hint or "Reload the page, or use the navigation on the left.")

    nicegui_app.add_exception_handler(404, show_not_found)
    nicegui_app.on_page_exception(show_failure)


def _heading(text: str) -> None:
    with ui.element("h1"):
        ui.label(text)
