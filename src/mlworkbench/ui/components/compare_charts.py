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
_AXES = 6  # parameters
_CHOSEN = 4  # metrics beside them
_COLOURS = 8  # runs that have a colour of their own
_OFFERED = 200  # names to choose from at once
_OVER = {"step": "Step", "time": "Time", "relative": "Relative"}


def _label(run: dict[str, Any]) -> str:
    return str(run["name"] or run["id"])


def choice(names: Sequence[str], label: str, value: str | list[str]) -> ui.select:
    """One name, or several where a list is chosen; of very many, those are offered that a field beside it seeks."""
    many = isinstance(value, list)

    def offered(text: str, chosen: object) -> dict[str, str]:
        kept = [str(one) for one in (chosen if isinstance(chosen, list) else [chosen]) if one]
        fit = [name for name in names if text.lower() in name.lower()][:_OFFERED]
        return {name: plain(name, 60) for name in dict.fromkeys([*kept, *fit])}

    field = ui.select(offered("", value), label=label, value=value, multiple=many, with_input=many)
    field.props("dense outlined options-dense")
    if len(names) > _OFFERED:
        search = ui.input(f"Search {len(names)} names for {label}").props("dense outlined clearable debounce=250")
        search.classes("mlw-filter-choice")
        search.on_value_change(
            lambda event: field.set_options(offered(str(event.value or ""), field.value), value=field.value)
        )
    return field


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
            field = choice(list(self._found.series), "Metrics", self._names)
            field.props("use-chips").classes("mlw-chart-choice")
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
            ui.label(f"Showing the first {DRAWN} of {most} runs.").classes("mlw-faint")
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
    """Two parameters or metrics against each other."""

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
            ui.label("Scatter plot")
        with ui.row().classes("mlw-chart-tools"):
            for axis, value in (("x", self._x), ("y", self._y)):
                field = choice(self._names, axis, value)
                field.classes("mlw-filter-choice").on_value_change(
                    lambda event, axis=axis: self._choose(axis, str(event.value))
                )
        with ui.element("div").classes("mlw-charts-wide"):
            self._dots = Scatter("Scatter plot")
        self._draw()

    def _choose(self, axis: str, name: str) -> None:
        setattr(self, f"_{axis}", name)
        self._draw()

    def _draw(self) -> None:
        axes = [self._x, self._y]
        self._dots.show([plain(one, 60) for one in axes], points(self._found, axes))


class Lines:
    """The parameters that vary and some metrics as axes side by side, each run a line through them."""

    def __init__(self, found: Comparison) -> None:
        self._found = found
        names = varying(found.numbers)
        self._given = [name for name in names if name.startswith("params.")][:_AXES]
        self._measured = [name for name in names if not name.startswith("params.")]

    def build(self) -> None:
        if not self._measured or len(self._given) + len(self._measured) < 3 or len(self._found.runs) < 3:
            return
        with ui.element("h2"):
            ui.label("Parallel coordinates")
        chosen = _telling(self._found, self._measured)[: 2 if self._given else _CHOSEN]
        with ui.row().classes("mlw-chart-tools"):
            options = {name: _short(name, 60) for name in self._measured}
            field = ui.select(options, label="Metrics", value=chosen, multiple=True, with_input=True)
            field.props(f"dense outlined options-dense use-chips max-values={_CHOSEN}").classes("mlw-chart-choice")
            field.on_value_change(lambda event: self._draw(event.value or []))
            self._words = ui.label().classes("mlw-faint")
        with ui.element("div").classes("mlw-charts-wide"):
            self._chart = Scatter("Parallel coordinates", 340)
        self._draw(chosen)

    def _draw(self, metrics: Sequence[str]) -> None:
        axes = [*self._given, *metrics[:_CHOSEN]]
        by = metrics[0] if metrics and len(self._found.runs) > _COLOURS else None
        self._words.set_text(
            f"Each line is a run; colors from blue to orange show increasing {_short(by, 60)}."
            if by
            else "Each line is a run."
        )
        self._chart.show([_short(one) for one in axes], points(self._found, axes, by), parallel=True)


def _telling(found: Comparison, names: Sequence[str]) -> list[str]:
    """The metrics that have curves and stand first there, then the others; how long it took comes last."""
    rank = {f"metrics.{name}": at for at, name in enumerate(found.series)}
    return sorted(names, key=lambda name: (name == "duration", rank.get(name, len(rank))))


def points(found: Comparison, axes: Sequence[str], by: str | None = None) -> list[dict[str, object]]:
    """Of the runs that have something there: so the first ones have the colours that their curves have.

    ``by``: the name whose value, from 0 for the least to 1 for the most, is the shade.
    """
    told = [value for value in found.numbers[by] if value is not None] if by else []
    least, most = (min(told), max(told)) if told else (0.0, 0.0)
    every = []
    for at, run in enumerate(found.runs):
        values = [found.numbers[name][at] for name in axes]
        value = found.numbers[by][at] if by else None
        shade = None if value is None or most <= least else (value - least) / (most - least)
        if sum(one is not None for one in values) > 1:
            every.append({"id": run["id"], "label": _label(run), "values": values, "shade": shade})
    return every


def _short(name: str, most: int = 40) -> str:
    kind, _, rest = name.partition(".")
    return plain(rest if kind in ("params", "metrics") and rest else name, most)
