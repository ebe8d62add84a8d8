"""Charts that compare runs: overlaid curves, scatter plot, and parallel coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from ...sanitize import plain
from ..queries.compare import MAX_CURVES, Comparison, varying
from .metric_chart import MetricChart
from .text_table import Scatter

_DEFAULT_CHARTS = 6  # charts drawn by default
_MAX_PARAMETERS = 6  # maximum number of parameters in parallel coordinates
_MAX_METRICS = 4  # maximum number of metrics in parallel coordinates
_COLORS = 8  # number of distinct run colors
_MAX_OPTIONS = 200  # maximum number of names in a select
_X_AXES = {"step": "Step", "time": "Time", "relative": "Relative"}


def _label(run: dict[str, Any]) -> str:
    return str(run["name"] or run["id"])


def name_select(names: Sequence[str], label: str, value: str | list[str]) -> ui.select:
    """Create a select for one name, or for several if ``value`` is a list. Long lists are searchable."""
    is_multiple = isinstance(value, list)

    def offered(text: str, chosen: object) -> dict[str, str]:
        kept = [str(item) for item in (chosen if isinstance(chosen, list) else [chosen]) if item]
        matching = [name for name in names if text.lower() in name.lower()][:_MAX_OPTIONS]
        return {name: plain(name, 60) for name in dict.fromkeys([*kept, *matching])}

    field = ui.select(offered("", value), label=label, value=value, multiple=is_multiple, with_input=is_multiple)
    field.props("dense outlined options-dense")
    if len(names) > _MAX_OPTIONS:
        search = ui.input(f"Search {len(names)} names for {label}").props("dense outlined clearable debounce=250")
        search.classes("mlw-filter-choice")
        search.on_value_change(
            lambda event: field.set_options(offered(str(event.value or ""), field.value), value=field.value)
        )
    return field


class Curves:
    """Charts that overlay the series of all runs, one per metric."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._names = list(comparison.series)[:_DEFAULT_CHARTS]
        self._charts: list[MetricChart] = []
        self._options: dict[str, Any] = {"x": "step", "log": False, "smooth": 0.0}

    def build(self) -> None:
        with ui.element("h2"):
            ui.label("Curves")
        with ui.row().classes("mlw-chart-tools"):
            field = name_select(list(self._comparison.series), "Metrics", self._names)
            field.props("use-chips").classes("mlw-chart-choice")
            field.on_value_change(lambda event: self._draw(event.value or []))
            x_axis = ui.toggle(_X_AXES, value="step").props("dense no-caps unelevated")
            x_axis.on_value_change(lambda event: self._set_options(x=event.value))
            log = ui.checkbox("Log scale").props("dense")
            log.on_value_change(lambda event: self._set_options(log=bool(event.value)))
            ui.label("Smoothing").classes("mlw-faint")
            smooth = ui.slider(min=0, max=0.99, step=0.01, value=0).props('aria-label="Smoothing"')
            smooth.classes("mlw-chart-smooth").on(
                "update:model-value", lambda event: self._set_options(smooth=float(event.args)), throttle=0.2
            )
        max_runs = max(len(run_ids) for run_ids in self._comparison.series.values())
        if max_runs > MAX_CURVES:
            ui.label(f"Showing the first {MAX_CURVES} of {max_runs} runs.").classes("mlw-faint")
        self._box = ui.element("div").classes("mlw-charts")
        self._draw(self._names)

    def _draw(self, names: Sequence[str]) -> None:
        self._box.clear()
        self._charts = []
        with self._box:
            for name in names:
                self._charts.append(MetricChart(plain(name, 200), self._series(name), **self._options))

    def _series(self, name: str) -> list[dict[str, str]]:
        labels = {run["id"]: _label(run) for run in self._comparison.runs}
        query = urlencode({"name": name})
        return [
            {"label": labels[run], "url": f"/api/runs/{quote(run, safe='')}/series?{query}"}
            for run in self._comparison.series[name][:MAX_CURVES]
        ]

    def _set_options(self, **options: Any) -> None:
        self._options.update(options)
        for chart in self._charts:
            chart.set_options(**options)


class ScatterPlot:
    """Scatter plot of two parameters or metrics."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._names = varying(comparison.numbers)

    def build(self) -> None:
        params = [name for name in self._names if name.startswith("params.")]
        metrics = [name for name in self._names if name.startswith("metrics.")]
        if len(self._names) < 2:
            return
        self._x = (params or self._names)[0]
        self._y = next(name for name in (*metrics, *self._names) if name != self._x)
        with ui.element("h2"):
            ui.label("Scatter plot")
        with ui.row().classes("mlw-chart-tools"):
            for axis, value in (("x", self._x), ("y", self._y)):
                field = name_select(self._names, axis, value)
                field.classes("mlw-filter-choice").on_value_change(
                    lambda event, axis=axis: self._choose(axis, str(event.value))
                )
        with ui.element("div").classes("mlw-charts-wide"):
            self._plot = Scatter("Scatter plot")
        self._draw()

    def _choose(self, axis: str, name: str) -> None:
        setattr(self, f"_{axis}", name)
        self._draw()

    def _draw(self) -> None:
        axes = [self._x, self._y]
        self._plot.show([plain(axis, 60) for axis in axes], points(self._comparison, axes))


class ParallelCoordinates:
    """Parallel coordinates of the varying parameters and some metrics, with one line per run."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        names = varying(comparison.numbers)
        self._parameters = [name for name in names if name.startswith("params.")][:_MAX_PARAMETERS]
        self._metrics = [name for name in names if not name.startswith("params.")]

    def build(self) -> None:
        if not self._metrics or len(self._parameters) + len(self._metrics) < 3 or len(self._comparison.runs) < 3:
            return
        with ui.element("h2"):
            ui.label("Parallel coordinates")
        chosen = _rank_metrics(self._comparison, self._metrics)[: 2 if self._parameters else _MAX_METRICS]
        with ui.row().classes("mlw-chart-tools"):
            options = {name: _short_name(name, 60) for name in self._metrics}
            field = ui.select(options, label="Metrics", value=chosen, multiple=True, with_input=True)
            field.props(f"dense outlined options-dense use-chips max-values={_MAX_METRICS}").classes("mlw-chart-choice")
            field.on_value_change(lambda event: self._draw(event.value or []))
            self._legend = ui.label().classes("mlw-faint")
        with ui.element("div").classes("mlw-charts-wide"):
            self._chart = Scatter("Parallel coordinates", 340)
        self._draw(chosen)

    def _draw(self, metrics: Sequence[str]) -> None:
        axes = [*self._parameters, *metrics[:_MAX_METRICS]]
        by = metrics[0] if metrics and len(self._comparison.runs) > _COLORS else None
        self._legend.set_text(
            f"Each line is a run; colors from blue to orange show increasing {_short_name(by, 60)}."
            if by
            else "Each line is a run."
        )
        self._chart.show([_short_name(axis) for axis in axes], points(self._comparison, axes, by), parallel=True)


def _rank_metrics(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """Sort metrics: those with curves first, in the order of the curves, and the duration last."""
    rank = {f"metrics.{name}": index for index, name in enumerate(comparison.series)}
    return sorted(names, key=lambda name: (name == "duration", rank.get(name, len(rank))))


def points(comparison: Comparison, axes: Sequence[str], by: str | None = None) -> list[dict[str, object]]:
    """Return a point for each run with at least two values, in run order to match the curve colors.

    ``by``: name of the value that sets the shade, from 0 for the minimum to 1 for the maximum.
    """
    numbers = [value for value in comparison.numbers[by] if value is not None] if by else []
    minimum, maximum = (min(numbers), max(numbers)) if numbers else (0.0, 0.0)
    result = []
    for index, run in enumerate(comparison.runs):
        values = [comparison.numbers[name][index] for name in axes]
        value = comparison.numbers[by][index] if by else None
        shade = None if value is None or maximum <= minimum else (value - minimum) / (maximum - minimum)
        if sum(item is not None for item in values) > 1:
            result.append({"id": run["id"], "label": _label(run), "values": values, "shade": shade})
    return result


def _short_name(name: str, max_length: int = 40) -> str:
    kind, _, rest = name.partition(".")
    return plain(rest if kind in ("params", "metrics") and rest else name, max_length)
