"""Environment tab: packages, image, and variables. Secret values are never shown."""

from __future__ import annotations

from nicegui import ui

from ....report.units import pluralize
from ...components.empty_state import empty_state
from ...components.property_list import heading, property_list
from ...queries import code as queries
from .page_context import RunPageContext

_KINDS = {
    "managed": "Built by mlw from the lock file",
    "existing": "Existing Python",
    "unknown": "Not recorded",
}


async def show(context: RunPageContext) -> None:
    if context.facts.is_untracked:
        message = "The script was started without mlw, so its environment was not recorded."
        empty_state("inventory_2", "No environment recorded", message)
        return
    environment = await context.backend.call(queries.environment, context.run.id)
    with ui.element("div").classes("mlw-run-columns"):
        with ui.element("div").classes("mlw-run-main"):
            with ui.element("section").classes("mlw-card"):
                heading("Packages")
                _packages(environment)
            _variables(environment)
        with ui.element("div").classes("mlw-run-side"), ui.element("section").classes("mlw-card"):
            heading("Environment")
            property_list(
                [
                    ("Kind", _KINDS.get(environment.kind, environment.kind)),
                    ("Python", environment.python),
                    *environment.facts,
                ]
            )


def _packages(environment: queries.Environment) -> None:
    if not environment.packages:
        message = "The packages of this Python were not recorded."
        ui.label("No packages." if environment.known else message).classes("mlw-faint")
        return
    columns = [
        {"field": "name", "headerName": "Package", "flex": 2, "filter": True},
        {"field": "version", "headerName": "Version", "flex": 1},
        {"field": "source", "headerName": "Source", "width": 110},
    ]
    rows = [
        {"name": package.name, "version": package.version, "source": package.source} for package in environment.packages
    ]
    search = ui.input("Search packages").props("outlined dense clearable").classes("mlw-run-search")
    ui.label(pluralize(len(rows), "package")).classes("mlw-faint")
    grid = ui.aggrid({"columnDefs": columns, "rowData": rows, "defaultColDef": {"sortable": True}}, html_columns=[])
    grid.classes("mlw-run-packages")
    search.on_value_change(
        lambda event: grid.run_grid_method("setGridOption", "quickFilterText", str(event.value or ""))
    )


def _variables(environment: queries.Environment) -> None:
    if environment.variables:
        with ui.element("section").classes("mlw-card"):
            heading("Environment variables")
            property_list(environment.variables, mono=True)
            if environment.passed:
                ui.label(f"Passed from the submitting shell: {', '.join(environment.passed)}").classes("mlw-faint")
    if environment.secrets:
        with ui.element("section").classes("mlw-card"):
            heading("Secrets")
            ui.label("Passed to the script as environment variables; values are never stored.").classes("mlw-faint")
            property_list(((name, "") for name in environment.secrets), mono=True)
