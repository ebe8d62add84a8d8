"""Charts of runs side by side: curves over each other, points, lines through many axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from ...report.plain import plain
from ..answers.compare import DRAWN, Comparison, varying
from .chart import Chart
from .sheet import Scatter

_CHARTS = 6  # that are drawn without being asked for
_AXES = 9
_OVER = {"step": "Step", "time": "Time", "relative": "Since the start"}


def _label(run: dict[str, Any]) -> str:
    return str(run["name"] or run["id"])


class Curves:
    """The series of all runs over each other, a chart for each name."""

    def __init__(self, found: Comparison) -> None:
        self._found = found
        self._names = list(found.series)[:_CHARTS]
        self._charts: list[Chart] = []
        self._look: dict[str, Any] = {"x": "step", "log": False, "smooth": 0.0}

    def build(self) -> None:
        with ui.element("h2"):
            ui.label("Curves")
        with ui.row().classes("mlw-chart-tools"):
            options = {name: plain(name, 60) for name in self._found.series}
            field = ui.select(options, label="Metrics", value=self._names, multiple=True, with_input=True)
            field.props("dense outlined options-dense use-chips").classes("mlw-chart-choice")
            field.on_value_change(lambda event: self._draw(event.value or []))
            over = ui.toggle(_OVER, value="step").props("dense no-caps unelevated")
            over.on_value_change(lambda event: self._set(x=event.value))
            log = ui.checkbox("Log scale").props("dense")
            log.on_value_change(lambda event: self._set(log=bool(event.value)))
            ui.label("Smoothing").classes("mlw-faint")
            smooth = ui.slider(min=0, max=0.99, step=0.01, value=0).props('aria-label="Smoothing"')
            smooth.classes("mlw-chart-smooth").on(
                "update:model-value", lambda event: self._set(smooth=float(event.args)), throttle=0.2
            )
        most = max(len(having) for having in self._found.series.values())
        if most > DRAWN:
            ui.label(f"The first {DRAWN} of {most} runs are drawn.").classes("mlw-faint")
        self._place = ui.element("div").classes("mlw-charts")
        self._draw(self._names)

    def _draw(self, names: Sequence[str]) -> None:
        self._place.clear()
        self._charts = []
        with self._place:
            for name in names:
                self._charts.append(Chart(plain(name, 200), self._series(name), **self._look))

    def _series(self, name: str) -> list[dict[str, str]]:
        labels = {run["id"]: _label(run) for run in self._found.runs}
        query = urlencode({"name": name})
        return [
            {"label": labels[run], "url": f"/api/runs/{quote(run, safe='')}/series?{query}"}
            for run in self._found.series[name][:DRAWN]
        ]

    def _set(self, **wishes: Any) -> None:
        self._look.update(wishes)
        for chart in self._charts:
            chart.look(**wishes)


class Spread:
    """Two parameters or metrics against each other; all of them as axes side by side."""

    def __init__(self, found: Comparison) -> None:
        self._found = found
        self._names = varying(found.numbers)

    def build(self) -> None:
        params = [name for name in self._names if name.startswith("params.")]
        metrics = [name for name in self._names if name.startswith("metrics.")]
        if len(self._names) < 2:
            return
        self._x = (params or self._names)[0]
        self._y = next(name for name in (*metrics, *self._names) if name != self._x)
        with ui.element("h2"):
            ui.label("Scatter")
        options = {name: plain(name, 60) for name in self._names}
        with ui.row().classes("mlw-chart-tools"):
            for axis, value in (("x", self._x), ("y", self._y)):
                field = ui.select(options, label=axis, value=value).props("dense outlined options-dense")
                field.classes("mlw-filter-choice").on_value_change(
                    lambda event, axis=axis: self._choose(axis, str(event.value))
                )
        with ui.element("div").classes("mlw-charts"):
            self._dots = Scatter("Scatter")
            if len(self._names) > 2 and len(self._found.runs) > 2:
                axes = self._names[:_AXES]
                Scatter("Parallel coordinates").show([_short(one) for one in axes], self._points(axes), parallel=True)
        self._draw()

    def _choose(self, axis: str, name: str) -> None:
        setattr(self, f"_{axis}", name)
        self._draw()

    def _draw(self) -> None:
        axes = [self._x, self._y]
        self._dots.show([plain(one, 60) for one in axes], self._points(axes))

    def _points(self, axes: Sequence[str]) -> list[dict[str, object]]:
        """Of the runs that have something there: so the first ones have the colours that their curves have."""
        every = (
            {"id": run["id"], "label": _label(run), "values": [self._found.numbers[name][at] for name in axes]}
            for at, run in enumerate(self._found.runs)
        )
        return [one for one in every if sum(value is not None for value in one["values"]) > 1]


def _short(name: str) -> str:
    return plain(name.partition(".")[2] or name, 24)
