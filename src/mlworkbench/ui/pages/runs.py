"""The runs of a project, or of all: a grid with filter, order and columns of the user's choice."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from ...errors import MlwError
from ...report.plain import plain
from ...report.units import counted
from ..answers import runs as answers
from ..answers.runs import Wishes
from ..desk import Desk
from ..parts.columns import choose_columns
from ..parts.empty import empty
from ..parts.frame import Here, frame, here
from ..parts.grid import Grid
from ..parts.runactions import RunActions
from ..parts.runchart import RunChart
from ..parts.runfilter import FilterBar, View
from ..parts.trouble import tell

_PAUSE = 1.5  # seconds between looks whether something was written
_COUNTED = 5.0  # seconds between counts of all that there is to filter for
_MEASURES = 40  # metrics that the chart offers
_LOOK = '<link rel="stylesheet" href="/static/runs.css">'


def register(desk: Desk) -> None:
    ui.add_head_html(_LOOK, shared=True)  # jobs and dialogs are on other pages, too

    @ui.page("/runs")
    async def everywhere(request: Request) -> None:
        await _page(desk, None, request)

    @ui.page("/p/{key}/runs")
    async def of_project(key: str, request: Request) -> None:
        try:
            where = here(desk, key)
        except MlwError as error:
            with frame(desk, "Runs", active="Runs"):
                with ui.element("h1"):
                    ui.label("Runs")
                empty("error_outline", plain(error.message, 300), plain(error.hint or "", 300))
            return
        await _page(desk, where, request)


async def _page(desk: Desk, where: Here | None, request: Request) -> None:
    view = View.from_address(request.query_params.multi_items())
    with frame(desk, "Runs", where, active="Runs" if where else "All runs", wide=True):
        page = RunsPage(desk, where, view)
        try:
            await page.build()
        except MlwError as error:
            empty("error_outline", plain(error.message, 300), plain(error.hint or "", 300))


class RunsPage:
    """One page of one browser."""

    def __init__(self, desk: Desk, where: Here | None, view: View) -> None:
        self._desk, self._where, self._view = desk, where, view
        self._project = where.project.id if where else None
        self._path = f"{where.address}/runs" if where else "/runs"
        self._seen = -1
        self._counted = 0.0

    async def build(self) -> None:
        with ui.row().classes("mlw-title-row"):
            with ui.element("h1"):
                ui.label("Runs" if self._where else "All runs")
            self._count = ui.label("").classes("mlw-faint").props("role=status")
            ui.space()
            self._tools = ui.row().classes("mlw-title-row-tools")
        with self._tools:
            button = ui.button("Columns", icon="view_column", on_click=self._choose, color=None)
            button.props("flat dense no-caps").classes("mlw-action")
        self._offered = await self._offer()
        if not any(self._offered.statuses.values()) and not self._view.filtered and not self._view.archived:
            self._count.set_visibility(False)
            await self._nothing()
            return
        self._bar = FilterBar(self._view, self._offered, self._narrow)
        self._actions = RunActions(self._desk, self._refresh, lambda: self._grid.choose_none())
        refused = await self._refusal(self._view)
        shown = replace(self._view, where="", since="") if refused else self._view
        url = shown.rows_url(self._project)
        await self._build_chart(url)
        self._grid = Grid(url, self._columns(), self._view.sort, label="Runs, newest first unless sorted")
        self._fit()
        self._grid.heard(
            chosen=self._actions.choose, sorted_by=self._order, counted=self._tell_count, trouble=self._trouble
        )
        self._none = ui.label("No run fits this filter.").classes("mlw-faint").props("role=status")
        self._none.set_visibility(False)
        self._command = ui.label(self._view.command(self._where is None)).classes("mlw-mono mlw-faint mlw-said")
        self._seen = await self._desk.ask(answers.generation)
        ui.timer(_PAUSE, self._look)

    async def _build_chart(self, url: str) -> None:
        """Bars above the grid, if wanted: the choice stands in the title row."""
        names = await self._desk.ask(answers.names, Wishes(project=self._project))
        options = {"none": "No chart", "duration": "Duration"}
        options.update({f"metrics.{name}": plain(name, 40) for name in names["metrics"][:_MEASURES]})
        if self._view.chart not in options:
            self._view = replace(self._view, chart=View.chart)
        with self._tools:
            field = ui.select(options, value=self._view.chart, label="Chart").props("dense outlined options-dense")
            field.classes("mlw-filter-choice").on_value_change(lambda event: self._measure(str(event.value)))
        self._chart = RunChart(url, self._view.chart)

    def _measure(self, name: str) -> None:
        self._view = replace(self._view, chart=name)
        self._chart.show(self._view.rows_url(self._project), name)
        self._fit()
        self._remember()

    def _fit(self) -> None:
        has = self._view.chart != "none"
        self._chart.set_visibility(has)
        self._grid.classes(add="mlw-grid-below") if has else self._grid.classes(remove="mlw-grid-below")

    async def _nothing(self) -> None:
        ui.timer(_PAUSE, self._look_for_the_first)
        words = "Start one from the project's dashboard, or on the command line:"
        empty("history", "No runs yet", words, "mlw submit train.py")

    async def _look_for_the_first(self) -> None:
        if any((await self._offer()).statuses.values()):
            ui.navigate.reload()

    async def _offer(self) -> answers.Offered:
        self._counted = time.monotonic()
        return await self._desk.ask(answers.offered, self._project, self._view.archived, self._view.children)

    def _columns(self) -> list[dict[str, Any]]:
        return self._view.columns(self._where is None)

    # -- what the user changes ---------------------------------------------------------------------------

    async def _refusal(self, view: View) -> bool:
        """Whether the condition or the time cannot be used; words under the field say why."""
        try:
            await self._desk.ask(answers.check, view.wishes(self._project))
        except MlwError as error:
            words = plain(error.message.removeprefix("--where ").removeprefix("--since "), 300) + (
                f" – {plain(error.hint, 300)}" if error.hint else ""
            )
            self._bar.refuse("where" if view.where.strip() else "since", words)
            return True
        self._bar.refuse("where", None)
        self._bar.refuse("since", None)
        return False

    async def _narrow(self, view: View) -> None:
        if await self._refusal(view):
            return
        before, self._view = (
            self._view,
            replace(view, sort=self._view.sort, column=self._view.column, chart=self._view.chart),
        )
        self._chart.show(self._view.rows_url(self._project), self._view.chart)
        self._grid.show(self._view.rows_url(self._project), self._columns())
        self._remember()
        if (before.archived, before.children) != (view.archived, view.children):
            self._offered = await self._offer()
        self._bar.count(self._offered.statuses)

    def _order(self, sort: Any) -> None:
        self._view = replace(self._view, sort=str(sort))
        self._remember()

    async def _choose(self) -> None:
        names = await self._desk.ask(answers.names, replace(self._view, where="").wishes(self._project))
        shown = tuple(str(one["key"]) for one in self._columns()[1:])
        chosen = await choose_columns(names, shown)
        if chosen is not None:
            self._view = replace(self._view, column=chosen)
            self._grid.show(self._view.rows_url(self._project), self._columns())
            self._remember()

    def _remember(self) -> None:
        ui.navigate.history.replace(quote(self._path) + self._view.to_address(""))
        self._command.set_text(self._view.command(self._where is None))

    # -- what the grid tells -----------------------------------------------------------------------------

    def _tell_count(self, total: Any) -> None:
        count = int(total)
        self._count.set_text(f"{count:,} {counted(count, 'run').rpartition(' ')[2]}")
        self._none.set_visibility(not count)

    def _trouble(self, words: Any) -> None:
        tell(MlwError(f"the list of runs could not be read: {plain(str(words), 300)}"))

    # -- what changes elsewhere --------------------------------------------------------------------------

    async def _look(self) -> None:
        """Only if somebody has written something: place and choice stay."""
        seen = await self._desk.ask(answers.generation)
        if seen != self._seen:
            self._seen = seen
            await self._refresh()

    async def _refresh(self) -> None:
        self._grid.refresh()
        if self._view.chart != "none":
            self._chart.refresh()
        if time.monotonic() - self._counted > _COUNTED:
            self._offered = await self._offer()
            self._bar.count(self._offered.statuses)
