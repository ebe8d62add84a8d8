"""The points of one series as a table."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ....report.plain import plain
from ....report.units import counted
from ...answers import series as answers
from ...parts.rundialogs import asking
from ...parts.trouble import telling
from .context import Context

_NEWEST = 2000
# In the zone of whoever looks.
_MOMENT = "one => new Intl.DateTimeFormat('en', {dateStyle: 'medium', timeStyle: 'medium'}).format(one.value * 1000)"


async def show(context: Context, name: str) -> None:
    """A dialog with the newest of them."""
    with telling():
        total, found = await context.desk.ask(answers.points, context.run.id, name, -_NEWEST, _NEWEST)
        with asking(f"Points of {plain(name, 150)}") as dialog:
            words = counted(total, "point")
            ui.label(words if total <= _NEWEST else f"Last {_NEWEST} of {words}").classes("mlw-faint")
            columns = [
                {"field": "step", "headerName": "Step", "width": 110},
                {"field": "time", "headerName": "Time", "flex": 1, ":valueFormatter": _MOMENT},
                {"field": "value", "headerName": "Value", "flex": 1},
            ]
            rows = [{"step": one.step, "time": one.time, "value": one.words} for one in found]
            ui.aggrid({"columnDefs": columns, "rowData": rows}, html_columns=[]).classes("mlw-run-points")
            with ui.row().classes("mlw-dialog-buttons"):
                address = quote(name, safe="")
                ui.link("Download as CSV", f"{context.api}/metrics.csv?name={address}").props("download")
                ui.button("Close", on_click=dialog.close).props("flat no-caps")
        dialog.open()
