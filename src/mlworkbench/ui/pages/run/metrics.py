"""Metrics tab: charts of metrics, GPU and CPU usage, tables, and texts."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from nicegui import ui

from ....history.series.series_store import Name
from ....report.units import pluralize
from ....sanitize import plain
from ...components.distribution_chart import DistributionChart
from ...components.empty_state import empty_state
from ...components.metric_chart import MetricChart
from ...components.property_list import heading, table
from ...queries import logged_tables as table_queries
from ...queries import series as queries
from ...queries import system_metrics as telemetry_queries
from . import point_table
from .page_context import RunPageContext

_CHARTS_PER_STEP = 48  # charts shown at a time; more on demand
_AXES = {"step": "Step", "time": "Time", "relative": "Relative"}
_MAX_RANKS = 32  # maximum curves of other ranks in a chart
_POLL_INTERVAL = 3.0  # seconds between checks for new metrics
_FINAL_POLLS = 4  # number of checks after the run has ended


async def show(context: RunPageContext) -> None:
    await MetricsTab(context).build()


class MetricsTab:
    """Content of the metrics tab."""

    def __init__(self, context: RunPageContext) -> None:
        self._context = context
        query = context.query
        self._x = query.get("x", "") if query.get("x") in _AXES else "step"
        self._all_ranks = query.get("ranks") == "1"
        self._log = query.get("log") == "1"
        self._smooth = _parse_smoothing(query.get("smooth", ""))
        self._text = query.get("q", "")[:200]
        self._max_charts = _CHARTS_PER_STEP
        self._sync = True
        self._charts: list[MetricChart] = []
        self._machine_charts: list[MetricChart] = []
        self._names: list[Name] = []
        self._rank_names: dict[str, list[str]] = {}
        self._counts: dict[str, ui.label] = {}
        self._gauges: list[telemetry_queries.Gauge] = []
        self._polls_left = _FINAL_POLLS

    async def build(self) -> None:
        backend, run = self._context.backend, self._context.run
        self._names = await backend.call(queries.names, run.id)
        self._rank_names = await backend.call(queries.rank_names, run.id)
        self._gauges = await backend.call(telemetry_queries.SHARED.gauges, run.id)
        values, tables = await self._load_others()
        if not (self._names or tables or self._gauges) and run.status.final:
            text = 'Log numbers in the script to see charts: from mlworkbench import log; log("loss", 0.12, step=3)'
            empty_state("show_chart", "No metrics logged", text, f"mlw history metrics {plain(run.id, 100)}")
            return
        self._controls()
        self._box = ui.element("div").classes("mlw-run-tab")
        self._draw()
        self._details_box = ui.element("div").classes("mlw-run-tab")
        self._draw_details(values, tables)
        if not run.status.final:
            self._timer = ui.timer(_POLL_INTERVAL, self._poll)

    async def _load_others(self) -> tuple[list[queries.LoggedValues], list[table_queries.Table]]:
        backend, run = self._context.backend, self._context.run
        return await backend.call(queries.logged_values, run.id), await backend.call(table_queries.tables, run.id)

    def _draw_details(self, values: list[queries.LoggedValues], tables: list[table_queries.Table]) -> None:
        self._machine_charts = []
        self._details_box.clear()
        with self._details_box:
            self._show_machine(self._gauges)
            self._show_values(values, tables)

    def _controls(self) -> None:
        with ui.row().classes("mlw-run-controls"):
            search = ui.input("Search metrics", value=self._text).props("outlined dense clearable debounce=250")
            search.classes("mlw-run-search").on_value_change(lambda event: self._search(str(event.value or "")))
            axis = ui.toggle(_AXES, value=self._x, on_change=lambda event: self._set_options(x=str(event.value)))
            axis.props('dense no-caps unelevated aria-label="X axis"').classes("mlw-run-choice")
            with ui.row().classes("mlw-run-smoothing"):
                ui.label("Smoothing").props("id=mlw-run-smoothing")
                slider = ui.slider(min=0, max=0.99, step=0.01, value=self._smooth).classes("mlw-run-slider")
                slider.props("aria-labelledby=mlw-run-smoothing label")
                slider.on("change", lambda: self._set_options(smooth=float(slider.value)))
            ui.checkbox("Log scale", value=self._log, on_change=lambda event: self._set_options(log=bool(event.value)))
            ui.checkbox(
                "Synchronize zoom", value=True, on_change=lambda event: self._set_options(sync=bool(event.value))
            )
            box = ui.checkbox("All ranks", value=self._all_ranks, on_change=lambda event: self._show_ranks(event.value))
            box.bind_visibility_from(self, "_rank_names", backward=bool)
            ui.space()
            ui.link("Download CSV", f"{self._context.api}/metrics.csv").props("download")

    def _set_options(self, **options: object) -> None:
        """Change display options without redrawing the tab."""
        self._x = str(options.get("x", self._x))
        self._log = bool(options.get("log", self._log))
        self._smooth = float(str(options.get("smooth", self._smooth)))
        self._sync = bool(options.get("sync", self._sync))
        for chart in self._charts:
            chart.set_options(x=self._x, log=self._log, smooth=self._smooth, group=self._group)
        for chart in self._machine_charts:
            chart.set_options(x=self._time_axis, group=self._group)
        smooth = f"{self._smooth:g}" if self._smooth else ""
        self._context.update_query(x="" if self._x == "step" else self._x, log="1" if self._log else "", smooth=smooth)

    @property
    def _group(self) -> str:
        return "run" if self._sync else ""

    @property
    def _reach(self) -> float:
        """Length of the time axis in all charts: the duration of the run in seconds."""
        return self._context.run.duration or 0.0

    @property
    def _time_axis(self) -> str:
        """X axis of the machine charts. Machine samples have no steps."""
        return "relative" if self._x == "step" else self._x

    def _show_ranks(self, shown: bool) -> None:
        self._all_ranks = bool(shown)
        self._context.update_query(ranks="1" if shown else "")
        self._draw()

    def _search(self, text: str) -> None:
        self._text, self._max_charts = text[:200], _CHARTS_PER_STEP
        self._context.update_query(q=self._text)
        self._draw()

    def _draw(self) -> None:
        """Draw the charts of the metrics that match the search."""
        query = self._text.lower()
        matching = [metric for metric in self._names if metric.kind == "number" and query in metric.name.lower()]
        self._charts, self._counts = [], {}
        self._box.clear()
        with self._box:
            if not matching and self._text:
                ui.label(f"No metrics match {plain(self._text, 60)}.").classes("mlw-faint")
            elif not matching:
                ui.label(
                    "No numeric metrics yet." if not self._context.run.status.final else "No numeric metrics."
                ).classes("mlw-faint")
            with ui.element("div").classes("mlw-run-charts"):
                for metric in matching[: self._max_charts]:
                    self._chart(metric)
            if len(matching) > self._max_charts:
                remaining = pluralize(len(matching) - self._max_charts, "more metric")
                ui.button(f"Show {remaining}", on_click=self._show_more).props("flat no-caps")

    def _show_more(self) -> None:
        self._max_charts += _CHARTS_PER_STEP
        self._draw()

    def _chart(self, metric: Name) -> None:
        name = plain(metric.name, 200)
        address = quote(metric.name, safe="")
        with ui.element("div").classes("mlw-run-chart-place"):
            names = [metric.name, *(self._rank_names.get(metric.name, [])[:_MAX_RANKS] if self._all_ranks else [])]
            series = [
                {"label": plain(item, 200), "url": f"{self._context.api}/series?name={quote(item, safe='')}"}
                for item in names
            ]
            self._charts.append(
                MetricChart(name, series, self._x, self._log, self._smooth, 220, group=self._group, reach=self._reach)
            )
            with ui.row().classes("mlw-run-chart-more"):
                self._counts[metric.name] = ui.label(pluralize(metric.count, "point")).classes("mlw-faint")
                ui.space()
                button = ui.button("Points", on_click=lambda: point_table.show(self._context, metric.name))
                button.props("flat dense no-caps size=sm")._props["aria-label"] = f"Points of {name}"
                link = ui.link("CSV", f"{self._context.api}/metrics.csv?name={address}").props("download")
                link._props["aria-label"] = f"CSV of {name}"

    async def _poll(self) -> None:
        """Add new metrics while the run is active. The last points arrive shortly after it ends."""
        backend, run = self._context.backend, self._context.run
        if run.status.final:
            self._polls_left -= 1
            if self._polls_left <= 0:
                self._timer.deactivate()
        before, names = self._names, await backend.call(queries.names, run.id)
        if self._box.is_deleted:
            return  # another tab has been selected
        ranks, self._rank_names = self._rank_names, await backend.call(queries.rank_names, run.id)
        self._names = names
        changed = [(metric.name, metric.kind) for metric in names] != [(metric.name, metric.kind) for metric in before]
        if changed or (self._all_ranks and self._rank_names != ranks):
            self._draw()
        for metric in self._names:
            if metric.name in self._counts and metric.kind == "number":
                self._counts[metric.name].set_text(pluralize(metric.count, "point"))
        gauges = await backend.call(telemetry_queries.SHARED.gauges, run.id)
        if gauges != self._gauges or run.status.final:
            self._gauges = gauges
            others = await self._load_others()
            if not self._details_box.is_deleted:
                self._draw_details(*others)

    def _show_machine(self, gauges: list[telemetry_queries.Gauge]) -> None:
        if not gauges:
            return
        has_gpu = any(gauge.title.startswith("GPU ") for gauge in gauges)
        heading("GPU and CPU" if has_gpu else "CPU and memory")
        with ui.element("div").classes("mlw-run-charts"):
            for gauge in gauges:
                series = [
                    {"label": label, "url": f"{self._context.api}/machine/series?name={quote(name, safe='')}"}
                    for label, name in gauge.curves
                ]
                more: dict[str, Any] = {"group": self._group, "unit": gauge.unit, "reach": self._reach}
                self._machine_charts.append(MetricChart(gauge.title, series, self._time_axis, height=180, **more))

    def _show_values(self, values: list[queries.LoggedValues], tables: list[table_queries.Table]) -> None:
        if values or tables:
            heading("Tables and text")
        for logged_table in tables:
            with ui.element("section").classes("mlw-card"):
                _show_table(logged_table)
        for value in values:
            self._value(value)

    def _value(self, value: queries.LoggedValues) -> None:
        name = plain(value.name, 200)
        with ui.element("section").classes("mlw-card"):
            ui.label(name).classes("mlw-run-strong")
            if value.curve:
                url = f"{self._context.api}/series?name={quote(value.name, safe='')}"
                MetricChart(f"{name}, last list", [{"label": name, "url": url}], height=160)
            if value.count > len(value.rows):
                ui.label(f"Last {len(value.rows)} of {value.count}").classes("mlw-faint")
            table(value.titles, value.rows, name)


def _show_table(logged_table: table_queries.Table) -> None:
    """Show a table, or its plot and the table on request."""
    ui.label(logged_table.title).classes("mlw-run-strong")
    if logged_table.problem:
        ui.label(f"Not complete: {logged_table.problem}").classes("mlw-faint")
    if logged_table.plot:
        DistributionChart(logged_table.title, logged_table.plot)
    with ui.expansion("Values").props("dense") if logged_table.plot else ui.element("div"):
        if logged_table.titles:
            table(logged_table.titles, logged_table.rows, logged_table.title)
        if logged_table.more:
            ui.label(f"and {pluralize(logged_table.more, 'more row')}").classes("mlw-faint")


def _parse_smoothing(text: str) -> float:
    try:
        return min(0.99, max(0.0, float(text)))
    except ValueError:
        return 0.0
