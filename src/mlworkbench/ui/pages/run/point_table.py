"""Table of the points of a series."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ....report.units import pluralize
from ....sanitize import plain
from ...components.error_notice import report_errors
from ...components.run_dialogs import titled_dialog
from ...queries import series as queries
from .page_context import RunPageContext

_MAX_POINTS = 2000
# Formats a time in the browser's time zone.
_FORMAT_TIME = (
    "params => new Intl.DateTimeFormat('en', {dateStyle: 'medium', timeStyle: 'medium'}).format(params.value * 1000)"
)


async def show(context: RunPageContext, name: str) -> None:
    """Open a dialog with the newest points."""
    with report_errors():
        total, points = await context.backend.call(queries.points, context.run.id, name, -_MAX_POINTS, _MAX_POINTS)
        with titled_dialog(f"Points of {plain(name, 150)}") as dialog:
            count = pluralize(total, "point")
            ui.label(count if total <= _MAX_POINTS else f"Last {_MAX_POINTS} of {count}").classes("mlw-faint")
            columns = [
                {"field": "step", "headerName": "Step", "width": 110},
                {"field": "time", "headerName": "Time", "flex": 1, ":valueFormatter": _FORMAT_TIME},
                {"field": "value", "headerName": "Value", "flex": 1},
            ]
            rows = [{"step": point.step, "time": point.time, "value": point.text} for point in points]
            ui.aggrid({"columnDefs": columns, "rowData": rows}, html_columns=[]).classes("mlw-run-points")
            with ui.row().classes("mlw-dialog-buttons"):
                address = quote(name, safe="")
                ui.link("Download as CSV", f"{context.api}/metrics.csv?name={address}").props("download")
                ui.button("Close", on_click=dialog.close).props("flat no-caps")
        dialog.open()
