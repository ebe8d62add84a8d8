"""What a run measured: a chart for each series, what the machine did below them, tables and texts."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from nicegui import ui

from ....history.series.series import Name
from ....report.plain import plain
from ....report.units import counted
from ...answers import samples as answers_samples
from ...answers import series as answers
from ...answers import tables as answers_tables
from ...parts.chart import Chart
from ...parts.empty import empty
from ...parts.facts import heading, table
from . import points
from .context import Context

_PAGE = 48  # charts at once; more on demand
_AXES = {"step": "Step", "time": "Time", "relative": "Relative"}
_AGAIN = 3.0  # seconds between looks for new names
_LATE = 4  # looks after the end


async def show(context: Context) -> None:
    await Metrics(context).build()


class Metrics:
    """The tab of one page."""

    def __init__(self, context: Context) -> None:
        self._context = context
        asked = context.asked
        self._x = asked.get("x", "") if asked.get("x") in _AXES else "step"
        self._log = asked.get("log") == "1"
        self._smooth = _share(asked.get("smooth", ""))
        self._text = asked.get("q", "")[:200]
        self._most = _PAGE
        self._sync = True
        self._charts: list[Chart] = []
        self._machine: list[Chart] = []
        self._names: list[Name] = []
        self._counts: dict[str, ui.label] = {}
        self._gauges: list[answers_samples.Gauge] = []
        self._late = _LATE

    async def build(self) -> None:
        desk, run = self._context.desk, self._context.run
        self._names = await desk.ask(answers.names, run.id)
        self._gauges = await desk.ask(answers_samples.SHARED.gauges, run.id)
        told, tables = await self._others()
        if not (self._names or tables or self._gauges) and run.status.final:
            words = 'Log numbers in the script to see charts: from mlworkbench import log; log("loss", 0.12, step=3)'
            empty("show_chart", "No metrics logged", words, f"mlw history metrics {plain(run.id, 100)}")
            return
        self._controls()
        self._box = ui.element("div").classes("mlw-run-tab")
        self._draw()
        self._below = ui.element("div").classes("mlw-run-tab")
        self._draw_below(told, tables)
        if not run.status.final:
            self._timer = ui.timer(_AGAIN, self._look)

    async def _others(self) -> tuple[list[answers.Told], list[answers_tables.Table]]:
        desk, run = self._context.desk, self._context.run
        return await desk.ask(answers.told_values, run.id), await desk.ask(answers_tables.tables, run.id)

    def _draw_below(self, told: list[answers.Told], tables: list[answers_tables.Table]) -> None:
        self._machine = []
        self._below.clear()
        with self._below:
            self._show_machine(self._gauges)
            self._show_told(told, tables)

    def _controls(self) -> None:
        with ui.row().classes("mlw-run-controls"):
            search = ui.input("Search metrics", value=self._text).props("outlined dense clearable debounce=250")
            search.classes("mlw-run-search").on_value_change(lambda event: self._search(str(event.value or "")))
            axis = ui.toggle(_AXES, value=self._x, on_change=lambda event: self._look_at(x=str(event.value)))
            axis.props('dense no-caps unelevated aria-label="X axis"').classes("mlw-run-choice")
            with ui.row().classes("mlw-run-smoothing"):
                ui.label("Smoothing").props("id=mlw-run-smoothing")
                slider = ui.slider(min=0, max=0.99, step=0.01, value=self._smooth).classes("mlw-run-slider")
                slider.props("aria-labelledby=mlw-run-smoothing label")
                slider.on("change", lambda: self._look_at(smooth=float(slider.value)))
            ui.checkbox("Log scale", value=self._log, on_change=lambda event: self._look_at(log=bool(event.value)))
            ui.checkbox("Synchronize zoom", value=True, on_change=lambda event: self._look_at(sync=bool(event.value)))
            ui.space()
            ui.link("Download CSV", f"{self._context.api}/metrics.csv").props("download")

    def _look_at(self, **wishes: object) -> None:
        """Charts keep what they have, and are only shown otherwise."""
        self._x = str(wishes.get("x", self._x))
        self._log = bool(wishes.get("log", self._log))
        self._smooth = float(str(wishes.get("smooth", self._smooth)))
        self._sync = bool(wishes.get("sync", self._sync))
        for chart in self._charts:
            chart.look(x=self._x, log=self._log, smooth=self._smooth, group=self._group)
        for chart in self._machine:
            chart.look(x=self._time_axis, group=self._group)
        smooth = f"{self._smooth:g}" if self._smooth else ""
        self._context.keep(x="" if self._x == "step" else self._x, log="1" if self._log else "", smooth=smooth)

    @property
    def _group(self) -> str:
        return "run" if self._sync else ""

    @property
    def _reach(self) -> float:
        """Seconds from the start to the end: all charts over time have the same axis."""
        return self._context.run.duration or 0.0

    @property
    def _time_axis(self) -> str:
        """Machines know nothing of steps."""
        return "relative" if self._x == "step" else self._x

    def _search(self, text: str) -> None:
        self._text, self._most = text[:200], _PAGE
        self._context.keep(q=self._text)
        self._draw()

    def _draw(self) -> None:
        """The charts of the names that fit the search."""
        wanted = self._text.lower()
        fit = [one for one in self._names if one.kind == "number" and wanted in one.name.lower()]
        self._charts, self._counts = [], {}
        self._box.clear()
        with self._box:
            if not fit and self._text:
                ui.label(f"No metrics match {plain(self._text, 60)}.").classes("mlw-faint")
            elif not fit:
                ui.label(
                    "No numeric metrics yet." if not self._context.run.status.final else "No numeric metrics."
                ).classes("mlw-faint")
            with ui.element("div").classes("mlw-run-charts"):
                for one in fit[: self._most]:
                    self._chart(one)
            if len(fit) > self._most:
                left = counted(len(fit) - self._most, "more metric")
                ui.button(f"Show {left}", on_click=self._show_more).props("flat no-caps")

    def _show_more(self) -> None:
        self._most += _PAGE
        self._draw()

    def _chart(self, one: Name) -> None:
        name = plain(one.name, 200)
        address = quote(one.name, safe="")
        with ui.element("div").classes("mlw-run-chart-place"):
            series = [{"label": name, "url": f"{self._context.api}/series?name={address}"}]
            self._charts.append(
                Chart(name, series, self._x, self._log, self._smooth, 220, group=self._group, reach=self._reach)
            )
            with ui.row().classes("mlw-run-chart-more"):
                self._counts[one.name] = ui.label(counted(one.count, "point")).classes("mlw-faint")
                ui.space()
                button = ui.button("Points", on_click=lambda: points.show(self._context, one.name))
                button.props("flat dense no-caps size=sm")._props["aria-label"] = f"Points of {name}"
                link = ui.link("CSV", f"{self._context.api}/metrics.csv?name={address}").props("download")
                link._props["aria-label"] = f"CSV of {name}"

    async def _look(self) -> None:
        """New names come while a run goes on; the last of it comes home a little after its end."""
        desk, run = self._context.desk, self._context.run
        if run.status.final:
            self._late -= 1
            if self._late <= 0:
                self._timer.deactivate()
        before, names = self._names, await desk.ask(answers.names, run.id)
        if self._box.is_deleted:
            return  # another tab was chosen meanwhile
        self._names = names
        if [(one.name, one.kind) for one in self._names] != [(one.name, one.kind) for one in before]:
            self._draw()
        for one in self._names:
            if one.name in self._counts and one.kind == "number":
                self._counts[one.name].set_text(counted(one.count, "point"))
        gauges = await desk.ask(answers_samples.SHARED.gauges, run.id)
        if gauges != self._gauges or run.status.final:
            self._gauges = gauges
            others = await self._others()
            if not self._below.is_deleted:
                self._draw_below(*others)

    def _show_machine(self, gauges: list[answers_samples.Gauge]) -> None:
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
                self._machine.append(Chart(gauge.title, series, self._time_axis, height=180, **more))

    def _show_told(self, told: list[answers.Told], tables: list[answers_tables.Table]) -> None:
        if told or tables:
            heading("Tables and text")
        for one in tables:
            with ui.element("section").classes("mlw-card"):
                ui.label(one.title).classes("mlw-run-strong")
                if one.problem:
                    ui.label(one.problem).classes("mlw-faint")
                else:
                    table(one.titles, one.rows, one.title)
                if one.more:
                    ui.label(f"and {counted(one.more, 'more row')}").classes("mlw-faint")
        for value in told:
            self._value(value)

    def _value(self, value: answers.Told) -> None:
        name = plain(value.name, 200)
        with ui.element("section").classes("mlw-card"):
            ui.label(name).classes("mlw-run-strong")
            if value.curve:
                url = f"{self._context.api}/series?name={quote(value.name, safe='')}"
                Chart(f"{name}, last list", [{"label": name, "url": url}], height=160)
            if value.count > len(value.rows):
                ui.label(f"Last {len(value.rows)} of {value.count}").classes("mlw-faint")
            table(value.titles, value.rows, name)


def _share(text: str) -> float:
    try:
        return min(0.99, max(0.0, float(text)))
    except ValueError:
        return 0.0
