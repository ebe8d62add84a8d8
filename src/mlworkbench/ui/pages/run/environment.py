"""What a run ran with: packages, image, variables. Values of secrets are nowhere."""

from __future__ import annotations

from nicegui import ui

from ....report.units import counted
from ...answers import code as answers
from ...parts.empty import empty
from ...parts.facts import facts, heading
from .context import Context

_KINDS = {
    "managed": "Built by mlw from the lock file",
    "existing": "Existing Python",
    "unknown": "Not recorded",
}


async def show(context: Context) -> None:
    if context.facts.outside:
        words = "The script was started without mlw, so its environment was not recorded."
        empty("inventory_2", "No environment recorded", words)
        return
    found = await context.desk.ask(answers.environment, context.run.id)
    with ui.element("div").classes("mlw-run-columns"):
        with ui.element("div").classes("mlw-run-main"):
            with ui.element("section").classes("mlw-card"):
                heading("Packages")
                _packages(found)
            _variables(found)
        with ui.element("div").classes("mlw-run-side"), ui.element("section").classes("mlw-card"):
            heading("Environment")
            facts([("Kind", _KINDS.get(found.kind, found.kind)), ("Python", found.python), *found.facts])


def _packages(found: answers.Environment) -> None:
    if not found.packages:
        words = "mlw does not record the packages of an existing Python."
        ui.label("No packages." if found.known else words).classes("mlw-faint")
        return
    columns = [
        {"field": "name", "headerName": "Package", "flex": 2, "filter": True},
        {"field": "version", "headerName": "Version", "flex": 1},
        {"field": "source", "headerName": "Source", "width": 110},
    ]
    rows = [{"name": one.name, "version": one.version, "source": one.source} for one in found.packages]
    search = ui.input("Search packages").props("outlined dense clearable").classes("mlw-run-search")
    ui.label(counted(len(rows), "package")).classes("mlw-faint")
    grid = ui.aggrid({"columnDefs": columns, "rowData": rows, "defaultColDef": {"sortable": True}}, html_columns=[])
    grid.classes("mlw-run-packages")
    search.on_value_change(
        lambda event: grid.run_grid_method("setGridOption", "quickFilterText", str(event.value or ""))
    )


def _variables(found: answers.Environment) -> None:
    if found.variables:
        with ui.element("section").classes("mlw-card"):
            heading("Environment variables")
            facts(found.variables, mono=True)
    if found.secrets:
        with ui.element("section").classes("mlw-card"):
            heading("Secrets")
            ui.label("Passed to the script as environment variables; values are never stored.").classes("mlw-faint")
            facts(((name, "") for name in found.secrets), mono=True)
