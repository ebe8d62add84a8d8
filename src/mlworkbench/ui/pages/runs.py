"""Page that lists the runs of one project or of all projects, with grid, filter, and chart."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from ...errors import MlwError, UnknownName
from ...history.expression import FilterError
from ...report.units import pluralize
from ...sanitize import plain
from ..backend import Backend
from ..components.column_chooser import choose_columns
from ..components.empty_state import empty_state
from ..components.error_notice import notify_error
from ..components.page_frame import ProjectScope, frame
from ..components.page_links import show_address
from ..components.page_setup import app_page, project_page
from ..components.run_actions import RunActions
from ..components.run_chart import RunChart
from ..components.run_filter import FilterBar, View
from ..components.run_grid import RunGrid
from ..components.view_menu import ViewMenu
from ..queries import runs as queries
from ..queries.runs import RunFilter

_POLL_INTERVAL = 1.5  # seconds between checks for changes
_COUNT_INTERVAL = 5.0  # minimum seconds between status counts
_MAX_METRICS = 40  # maximum number of metrics offered for the chart


def register(backend: Backend) -> None:
    @app_page("/runs")
    async def everywhere(request: Request) -> None:
        await _page(backend, None, request)

    @project_page(backend, "/runs", "Runs")
    async def of_project(scope: ProjectScope, request: Request) -> None:
        await _page(backend, scope, request)


async def _page(backend: Backend, scope: ProjectScope | None, request: Request) -> None:
    view = View.from_address(request.query_params.multi_items())
    with frame(backend, "Runs", scope, active="Runs" if scope else "All runs", wide=True):
        shown = RunsPage(backend, scope, view)
        try:
            await shown.build()
        except MlwError as error:
            empty_state("error_outline", plain(error.message, 300), plain(error.hint or "", 300))


class RunsPage:
    """List of runs in a browser tab."""

    def __init__(self, backend: Backend, scope: ProjectScope | None, view: View) -> None:
        self._backend, self._scope, self._view = backend, scope, view
        self._project = scope.project.id if scope else None
        self._path = f"{scope.address}/runs" if scope else "/runs"
        self._generation = -1
        self._counted_at = 0.0

    async def build(self) -> None:
        with ui.row().classes("mlw-title-row"):
            with ui.element("h1"):
                ui.label("Runs" if self._scope else "All runs")
            self._count = ui.label("").classes("mlw-faint").props("role=status")
            self._stale_notice = (
                ui.label("Filter not applied: invalid condition").classes("mlw-bad").props("role=alert")
            )
            self._stale_notice.set_visibility(False)
            ui.space()
            self._tools = ui.row().classes("mlw-title-row-tools")
        self._filter_options = await self._load_options()
        if await self._is_empty():
            self._count.set_visibility(False)
            await self._show_empty()
            return
        self._bar = FilterBar(self._view, self._filter_options, self._apply_filter)
        self._actions = RunActions(self._backend, self._refresh, self._select_all, lambda: self._grid.select_none())
        has_error = await self._has_error(self._view)
        if has_error:  # the fields still show the invalid values
            self._view = replace(self._view, where="", since="", parent="")
        self._default_columns = await self._load_default_columns()
        names = await self._backend.call(queries.names, RunFilter(project=self._project))
        # No await from here to the last element: event handlers need all elements.
        self._build_tools(names["metrics"])
        self._build_grid()
        self._no_matches = ui.label("No runs match this filter.").classes("mlw-faint").props("role=status")
        self._no_matches.set_visibility(False)
        self._command = ui.label(self._view.command(self._scope is None)).classes("mlw-mono mlw-faint mlw-said")
        self._update_layout()
        self._set_stale(has_error)
        await self._count_statuses()
        self._generation = await self._backend.call(queries.generation)
        ui.timer(_POLL_INTERVAL, self._poll)

    def _build_grid(self) -> None:
        label, storage_key = "Runs, newest first by default", f"mlw-columns:{self._project or 'all'}"
        self._grid = RunGrid(self._url, self._columns(), self._view.sort, label=label, storage_key=storage_key)
        self._grid.add_listeners(
            chosen=self._actions.set_selection,
            sorted=self._set_sort,
            counted=self._show_count,
            trouble=self._show_error,
            kept=self._apply_stored_columns,
        )

    def _build_tools(self, metrics: list[str]) -> None:
        """Add the view menu, the column selector, and the chart selector to the title row."""
        options = {"none": "No chart", "duration": "Duration"}
        options.update({f"metrics.{name}": plain(name, 40) for name in metrics[:_MAX_METRICS]})
        if self._view.chart not in options:
            self._view = replace(self._view, chart=View.chart)
        with self._tools:
            ViewMenu(self._backend, self._project, self._path, lambda: self._view)
            button = ui.button("Columns", icon="view_column", on_click=self._choose_columns, color=None)
            button.props("flat dense no-caps").classes("mlw-action")
            field = ui.select(options, value=self._view.chart, label="Chart").props("dense outlined options-dense")
            field.classes("mlw-filter-choice").on_value_change(lambda event: self._set_chart(str(event.value)))
        self._chart = RunChart(self._url, self._view.chart)

    def _set_chart(self, name: str) -> None:
        self._view = replace(self._view, chart=name)
        self._chart.show(self._url, name)
        self._update_layout()
        self._update_address()

    def _update_layout(self) -> None:
        has_chart = self._view.chart != "none"
        self._chart.set_visibility(has_chart)
        self._grid.classes(add="mlw-grid-below") if has_chart else self._grid.classes(remove="mlw-grid-below")

    async def _is_empty(self) -> bool:
        """Return whether there are no runs, not even archived ones, which the filter can show."""
        if any(self._filter_options.statuses.values()) or self._view.is_filtered or self._view.archived:
            return False
        archived = await self._backend.call(queries.filter_choices, self._project, True, self._view.children)
        return not any(archived.statuses.values())

    async def _show_empty(self) -> None:
        ui.timer(_POLL_INTERVAL, self._reload_on_first_run)
        text = "Start one from the project's dashboard, or on the command line:"
        empty_state("history", "No runs yet", text, "mlw submit train.py")

    async def _reload_on_first_run(self) -> None:
        if any((await self._load_options()).statuses.values()):
            ui.navigate.reload()

    async def _load_default_columns(self) -> tuple[str, ...]:
        default = await self._backend.call(queries.default_columns, self._view.run_filter(self._project))
        return self._add_sort_column(default)

    def _add_sort_column(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Add the column that the list is sorted by, because the grid sorts by its columns only."""
        key = self._view.sort.removeprefix("-")
        return columns if key in ("", "id", *columns) else (*columns, key)

    async def _load_options(self) -> queries.FilterChoices:
        self._counted_at = time.monotonic()
        return await self._backend.call(queries.filter_choices, self._project, self._view.archived, self._view.children)

    @property
    def _url(self) -> str:
        return self._view.rows_url(self._project)

    def _columns(self) -> list[dict[str, Any]]:
        return self._view.columns(self._default_columns)

    def _apply_stored_columns(self, columns: Any) -> None:
        """Apply the columns stored in the browser. Columns in the URL take precedence."""
        stored = View.from_address(("column", str(name)) for name in columns or ()).column
        if stored and not self._view.column and len(View(column=stored).columns(())) > 1:
            self._view = replace(self._view, column=self._add_sort_column(stored))
            self._grid.show(self._url, self._columns())

    # -- changes by the user -----------------------------------------------------------------------------

    async def _has_error(self, view: View) -> bool:
        """Return whether the condition or time is invalid, and show the error below its field."""
        try:
            await self._backend.call(queries.check, view.run_filter(self._project))
        except MlwError as error:
            self._bar.set_error("where" if view.where.strip() or not view.since else "since", field_error(error))
            return True
        self._bar.set_error("where", None)
        self._bar.set_error("since", None)
        return False

    def _set_stale(self, has_error: bool) -> None:
        """Mark the displayed rows as stale while the filter is invalid."""
        self._grid.set_stale(has_error)
        self._chart.classes(add="mlw-grid-stale") if has_error else self._chart.classes(remove="mlw-grid-stale")
        self._stale_notice.set_visibility(has_error)
        self._count.set_visibility(not has_error)

    async def _apply_filter(self, view: View) -> None:
        has_error = await self._has_error(view)
        self._set_stale(has_error)
        if has_error:
            return
        before = self._view
        self._view = replace(view, sort=before.sort, column=before.column, chart=before.chart)
        self._chart.show(self._url, self._view.chart)
        if before.parent != view.parent:
            self._default_columns = await self._load_default_columns()
        self._grid.show(self._url, self._columns())
        self._update_address()
        await self._count_statuses()

    async def _count_statuses(self) -> None:
        self._counted_at = time.monotonic()
        self._bar.show_counts(await self._backend.call(queries.statuses, self._view.run_filter(self._project)))

    async def _select_all(self) -> None:
        if self._stale_notice.visible:
            return  # the displayed rows are stale
        name, is_descending = self._view.sort.removeprefix("-"), self._view.sort.startswith("-")
        run_filter = replace(self._view.run_filter(self._project), sort=name, descending=is_descending)
        rows = await self._backend.call(queries.select_all, run_filter)
        self._grid.select(rows)
        if len(rows) == queries.MAX_SELECTED:
            ui.notify(f"Only the first {queries.MAX_SELECTED:,} runs are selected.")

    def _set_sort(self, sort: Any) -> None:
        self._view = replace(self._view, sort=str(sort))
        self._update_address()

    async def _choose_columns(self) -> None:
        names = await self._backend.call(queries.names, replace(self._view, where="").run_filter(self._project))
        shown = tuple(str(column["key"]) for column in self._columns()[1:])
        chosen = await choose_columns(names, shown)
        if chosen is not None:
            self._view = replace(self._view, column=chosen)
            self._grid.show(self._url, self._columns())
            self._grid.store_columns(chosen)
            self._update_address()

    def _update_address(self) -> None:
        show_address(quote(self._path) + self._view.to_address(""))
        self._command.set_text(self._view.command(self._scope is None))

    # -- events of the grid ------------------------------------------------------------------------------

    def _show_count(self, total: Any) -> None:
        count = int(total)
        self._count.set_text(f"{count:,} {pluralize(count, 'run').rpartition(' ')[2]}")
        self._no_matches.set_visibility(not count)

    def _show_error(self, message: Any) -> None:
        notify_error(MlwError(f"cannot load the list of runs: {plain(str(message), 300)}"))

    # -- changes of the history --------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Refresh after the history changes, keeping the scroll position and selection."""
        generation = await self._backend.call(queries.generation)
        if generation != self._generation:
            self._generation = generation
            await self._refresh()

    async def _refresh(self) -> None:
        self._grid.refresh()
        if self._view.chart != "none":
            self._chart.refresh()
        if time.monotonic() - self._counted_at > _COUNT_INTERVAL:
            await self._count_statuses()
            await self._add_first_metrics()

    async def _add_first_metrics(self) -> None:
        """Show metric columns as soon as there are metrics. Existing metric columns are not changed."""
        if any(name.startswith("metrics.") for name in self._default_columns):
            return
        self._default_columns = await self._load_default_columns()
        self._grid.show(self._url, self._columns())


def field_error(error: MlwError) -> str:
    """Return an error message for a form field, without names of command-line options."""
    if isinstance(error, UnknownName):
        parts = [error.summary or error.message, error.hint, error.available]
    elif isinstance(error, FilterError):
        parts = [error.text, error.tip]
    else:
        parts = [error.message, error.hint]
    return plain(" – ".join(part for part in parts if part), 500)
