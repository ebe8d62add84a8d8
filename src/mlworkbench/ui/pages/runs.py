"""The runs of a project, or of all: a grid with filter, order and columns of the user's choice."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from ...errors import MlwError, UnknownName
from ...history.expression import FilterError
from ...report.plain import plain
from ...report.units import counted
from ..answers import runs as answers
from ..answers.runs import Wishes
from ..desk import Desk
from ..parts.addresses import show_address
from ..parts.columns import choose_columns
from ..parts.empty import empty
from ..parts.frame import Here, frame
from ..parts.grid import Grid
from ..parts.opening import our_page, project_page
from ..parts.runactions import RunActions
from ..parts.runchart import RunChart
from ..parts.runfilter import FilterBar, View
from ..parts.trouble import tell

_PAUSE = 1.5  # seconds between looks whether something was written
_COUNTED = 5.0  # seconds between counts of all that there is to filter for
_MEASURES = 40  # metrics that the chart offers


def register(desk: Desk) -> None:
    @our_page("/runs")
    async def everywhere(request: Request) -> None:
        await _page(desk, None, request)

    @project_page(desk, "/runs", "Runs")
    async def of_project(where: Here, request: Request) -> None:
        await _page(desk, where, request)


async def _page(desk: Desk, where: Here | None, request: Request) -> None:
    view = View.from_address(request.query_params.multi_items())
    with frame(desk, "Runs", where, active="Runs" if where else "All runs", wide=True):
        shown = RunsPage(desk, where, view)
        try:
            await shown.build()
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
            self._waits = ui.label("Filter not applied: invalid condition").classes("mlw-bad").props("role=alert")
            self._waits.set_visibility(False)
            ui.space()
            self._tools = ui.row().classes("mlw-title-row-tools")
        self._offered = await self._offer()
        if await self._is_empty():
            self._count.set_visibility(False)
            await self._nothing()
            return
        self._bar = FilterBar(self._view, self._offered, self._narrow)
        self._actions = RunActions(self._desk, self._refresh, self._choose_all, lambda: self._grid.choose_none())
        refused = await self._refusal(self._view)
        if refused:  # the fields keep what was asked for
            self._view = replace(self._view, where="", since="", parent="")
        self._usual = await self._desk.ask(answers.usual, self._view.wishes(self._project))
        names = await self._desk.ask(answers.names, Wishes(project=self._project))
        # From here to the last element nothing is waited for: what can be clicked finds all that it needs.
        self._build_tools(names["metrics"])
        self._build_grid()
        self._none = ui.label("No runs match this filter.").classes("mlw-faint").props("role=status")
        self._none.set_visibility(False)
        self._command = ui.label(self._view.command(self._where is None)).classes("mlw-mono mlw-faint mlw-said")
        self._fit()
        self._warn(refused)
        await self._count_statuses()
        self._seen = await self._desk.ask(answers.generation)
        ui.timer(_PAUSE, self._look)

    def _build_grid(self) -> None:
        label, place = "Runs, newest first by default", f"mlw-columns:{self._project or 'all'}"
        self._grid = Grid(self._url, self._columns(), self._view.sort, label=label, place=place)
        self._grid.heard(
            chosen=self._actions.choose,
            sorted=self._order,
            counted=self._tell_count,
            trouble=self._trouble,
            kept=self._take_kept,
        )

    def _build_tools(self, metrics: list[str]) -> None:
        """In the title row: the choice of columns, and of bars above the grid."""
        options = {"none": "No chart", "duration": "Duration"}
        options.update({f"metrics.{name}": plain(name, 40) for name in metrics[:_MEASURES]})
        if self._view.chart not in options:
            self._view = replace(self._view, chart=View.chart)
        with self._tools:
            button = ui.button("Columns", icon="view_column", on_click=self._choose, color=None)
            button.props("flat dense no-caps").classes("mlw-action")
            field = ui.select(options, value=self._view.chart, label="Chart").props("dense outlined options-dense")
            field.classes("mlw-filter-choice").on_value_change(lambda event: self._measure(str(event.value)))
        self._chart = RunChart(self._url, self._view.chart)

    def _measure(self, name: str) -> None:
        self._view = replace(self._view, chart=name)
        self._chart.show(self._url, name)
        self._fit()
        self._remember()

    def _fit(self) -> None:
        has = self._view.chart != "none"
        self._chart.set_visibility(has)
        self._grid.classes(add="mlw-grid-below") if has else self._grid.classes(remove="mlw-grid-below")

    async def _is_empty(self) -> bool:
        """Whether there is no run at all: where all are archived, the filter must be there to show them."""
        if any(self._offered.statuses.values()) or self._view.filtered or self._view.archived:
            return False
        archived = await self._desk.ask(answers.offered, self._project, True, self._view.children)
        return not any(archived.statuses.values())

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

    @property
    def _url(self) -> str:
        return self._view.rows_url(self._project)

    def _columns(self) -> list[dict[str, Any]]:
        return self._view.columns(self._usual)

    def _take_kept(self, columns: Any) -> None:
        """The choice of another day; the address, if it names columns, counts more."""
        told = View.from_address(("column", str(one)) for one in columns or ()).column
        if told and not self._view.column and len(View(column=told).columns(())) > 1:
            self._view = replace(self._view, column=told)
            self._grid.show(self._url, self._columns())

    # -- what the user changes ---------------------------------------------------------------------------

    async def _refusal(self, view: View) -> bool:
        """Whether the condition or the time cannot be used; words under the field say why."""
        try:
            await self._desk.ask(answers.check, view.wishes(self._project))
        except MlwError as error:
            self._bar.refuse("where" if view.where.strip() or not view.since else "since", in_plain_words(error))
            return True
        self._bar.refuse("where", None)
        self._bar.refuse("since", None)
        return False

    def _warn(self, refused: bool) -> None:
        """Rows of another condition are not to be taken for those of this one."""
        self._grid.grey(refused)
        self._chart.classes(add="mlw-grid-stale") if refused else self._chart.classes(remove="mlw-grid-stale")
        self._waits.set_visibility(refused)
        self._count.set_visibility(not refused)

    async def _narrow(self, view: View) -> None:
        refused = await self._refusal(view)
        self._warn(refused)
        if refused:
            return
        before = self._view
        self._view = replace(view, sort=before.sort, column=before.column, chart=before.chart)
        self._chart.show(self._url, self._view.chart)
        if before.parent != view.parent:
            self._usual = await self._desk.ask(answers.usual, self._view.wishes(self._project))
        self._grid.show(self._url, self._columns())
        self._remember()
        await self._count_statuses()

    async def _count_statuses(self) -> None:
        self._counted = time.monotonic()
        self._bar.count(await self._desk.ask(answers.statuses, self._view.wishes(self._project)))

    async def _choose_all(self) -> None:
        if self._waits.visible:
            return  # what is shown is not what was asked for
        name, largest = self._view.sort.removeprefix("-"), self._view.sort.startswith("-")
        asked = replace(self._view.wishes(self._project), sort=name, descending=largest)
        rows = await self._desk.ask(answers.chosen, asked)
        self._grid.choose(rows)
        if len(rows) == answers.CHOSEN:
            ui.notify(f"Only the first {answers.CHOSEN:,} runs are selected.")

    def _order(self, sort: Any) -> None:
        self._view = replace(self._view, sort=str(sort))
        self._remember()

    async def _choose(self) -> None:
        names = await self._desk.ask(answers.names, replace(self._view, where="").wishes(self._project))
        shown = tuple(str(one["key"]) for one in self._columns()[1:])
        chosen = await choose_columns(names, shown)
        if chosen is not None:
            self._view = replace(self._view, column=chosen)
            self._grid.show(self._url, self._columns())
            self._grid.keep(chosen)
            self._remember()

    def _remember(self) -> None:
        show_address(quote(self._path) + self._view.to_address(""))
        self._command.set_text(self._view.command(self._where is None))

    # -- what the grid tells -----------------------------------------------------------------------------

    def _tell_count(self, total: Any) -> None:
        count = int(total)
        self._count.set_text(f"{count:,} {counted(count, 'run').rpartition(' ')[2]}")
        self._none.set_visibility(not count)

    def _trouble(self, words: Any) -> None:
        tell(MlwError(f"cannot load the list of runs: {plain(str(words), 300)}"))

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
            await self._count_statuses()
            await self._see_first_metrics()

    async def _see_first_metrics(self) -> None:
        """Columns that stand there stay; but where nothing was measured yet, there are none to stay."""
        if any(one.startswith("metrics.") for one in self._usual):
            return
        self._usual = await self._desk.ask(answers.usual, self._view.wishes(self._project))
        self._grid.show(self._url, self._columns())


def in_plain_words(error: MlwError) -> str:
    """The error for a field, which is no option; what was meant, if that can be guessed, comes first."""
    if isinstance(error, UnknownName):
        words = [error.summary or error.message, error.hint, error.available]
    elif isinstance(error, FilterError):
        words = [error.text, error.tip]
    else:
        words = [error.message, error.hint]
    return plain(" – ".join(word for word in words if word), 500)
