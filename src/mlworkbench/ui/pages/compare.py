"""Page that compares runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from nicegui import ui

from ...errors import MlwError
from ...report.units import pluralize
from ...sanitize import plain
from ..backend import Backend
from ..components.compare_charts import Curves, ParallelCoordinates, ScatterPlot
from ..components.empty_state import empty_state
from ..components.page_frame import ProjectScope, frame, open_scope
from ..components.page_links import full_address
from ..components.page_setup import app_page
from ..components.text_table import DiffLines, TextTable
from ..queries import code as code_queries
from ..queries import compare as queries
from ..queries.projects import key_of

_MAX_COLUMNS = 6  # maximum number of runs as columns; more runs become rows
_MAX_CHIPS = 24  # maximum number of listed runs
_MAX_ROWS = 200  # maximum number of rows in a table
_MAX_CELLS = 10_000
_TITLES = {"parameters": "Parameters", "metrics": "Metrics", "properties": "Properties", "packages": "Packages"}


def register(backend: Backend) -> None:
    @app_page("/compare")
    async def compare(runs: str = "") -> None:
        ids = list(dict.fromkeys(run_id for run_id in runs.split(",") if run_id))
        try:
            comparison = await backend.call(queries.compare, ids) if ids else None
        except MlwError as error:
            with frame(backend, "Compare", active="All runs", wide=True):
                _heading("Compare runs")
                empty_state("error_outline", plain(error.message, 300), plain(error.hint or "", 300))
            return
        scope = await backend.call(lambda _: _project(backend, comparison))
        with frame(backend, "Compare", scope, active="Runs" if scope else "All runs", wide=True):
            await _page(backend, comparison)


def _project(backend: Backend, comparison: queries.Comparison | None) -> ProjectScope | None:
    """Return the project of all runs, if it is in the project list and its ID has not changed."""
    if comparison is None or comparison.project is None:
        return None
    project, folder = comparison.project
    try:
        scope = open_scope(backend, key_of(Path(folder)))
    except (MlwError, OSError):
        return None
    return scope if scope.project.id == project else None


async def _page(backend: Backend, comparison: queries.Comparison | None) -> None:
    if comparison is None:
        _heading("Compare runs")
        text = "Select two or more runs on the All runs page."
        empty_state("compare_arrows", "No runs selected", text, "mlw history compare RUN RUN")
        return
    others = await backend.call(queries.suggest_runs, comparison.ids)
    _heading(f"Compare {pluralize(len(comparison.runs), 'run')}")
    _run_chips(comparison, others)
    if len(comparison.runs) < 2:
        empty_state("compare_arrows", "Only one run selected", "Add another run above.")
        return
    for kind in ("parameters", "metrics"):
        DifferenceTable(comparison, kind).build()
    if not any(comparison.tables.values()) and not any(comparison.changed.values()):
        ui.label("No differences found.").classes("mlw-faint")
    if comparison.series:
        Curves(comparison).build()
    ScatterPlot(comparison).build()
    ParallelCoordinates(comparison).build()
    await _images(backend, comparison)
    for kind in ("properties", "packages"):
        DifferenceTable(comparison, kind).build()
    if comparison.unknown_packages:
        text = f"Packages not compared: not recorded for {_join_names(comparison.unknown_packages)}."
        ui.label(text).classes("mlw-faint")
    CodeDiff(backend, comparison).build()


def _heading(text: str) -> None:
    with ui.element("h1"):
        ui.label(text)


def _section(text: str) -> None:
    with ui.element("h2"):
        ui.label(text)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(plain(name, 60) for name in names[:5]) + (f", and {len(names) - 5} more" if len(names) > 5 else "")


def _address(ids: Sequence[str]) -> str:
    return f"/compare?runs={quote(','.join(ids), safe=',')}"


def _run_address(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


def _run_chips(comparison: queries.Comparison, others: dict[str, str]) -> None:
    """Show the compared runs, with buttons to remove runs and a field to add more."""
    ids = comparison.ids
    with ui.element("div").classes("mlw-compared").props('role=group aria-label="Compared runs"'):
        for run in comparison.runs[:_MAX_CHIPS]:
            with ui.element("span").classes("mlw-compared-run"):
                ui.link(run["name"] or run["id"], _run_address(run["id"])).classes("mlw-grid-link")
                rest = [run_id for run_id in ids if run_id != run["id"]]
                button = ui.button(icon="close", on_click=lambda rest=rest: ui.navigate.to(_address(rest)), color=None)
                button.props("flat dense round size=xs").classes("mlw-compared-out")
                button._props["aria-label"] = f"Remove {run['id']}"
        if len(ids) > _MAX_CHIPS:
            ui.label(f"and {len(ids) - _MAX_CHIPS} more").classes("mlw-faint")
        field = ui.select(others, label="Add a run", with_input=True).props("dense outlined options-dense")
        field.classes("mlw-compared-add")
        field.on_value_change(lambda event: ui.navigate.to(_address([*ids, str(event.value)])) if event.value else None)
    command = shlex.join(("mlw", "history", "compare", *ids[:6])) + (" …" if len(ids) > 6 else "")
    ui.label(command).classes("mlw-mono mlw-faint mlw-said")


class DifferenceTable:
    """Table of values of one kind that differ. Long tables have a search field.

    A few runs are shown as columns, many runs as rows.
    """

    def __init__(self, comparison: queries.Comparison, kind: str) -> None:
        self._title = _TITLES[kind]
        self._table = comparison.tables[kind]
        self._runs = [f"{run['name']} ({run['id']})" if run["name"] else str(run["id"]) for run in comparison.runs]
        self._links = [_run_address(run_id) for run_id in comparison.ids]
        self._runs_as_columns = len(self._runs) <= _MAX_COLUMNS
        self._max_names = _MAX_ROWS if self._runs_as_columns else max(20, _MAX_CELLS // len(self._runs))

    def build(self) -> None:
        if not self._table:
            return
        _section(f"{self._title} that differ")
        if len(self._table) > self._max_names:
            field = ui.input(f"Search {self._title.lower()}").props("outlined dense clearable debounce=250")
            field.classes("mlw-run-search").on_value_change(lambda event: self._draw(str(event.value or "")))
        self._text_table = TextTable(self._title)
        self._more = ui.label().classes("mlw-faint")
        self._draw("")

    def _draw(self, text: str) -> None:
        names = [name for name in self._table if text.lower() in name.lower()]
        table = {name: self._table[name] for name in names[: self._max_names]}
        if self._runs_as_columns:
            head = [(self._title, ""), *zip(self._runs, self._links, strict=True)]
            self._text_table.show(head, [[name, *values] for name, values in table.items()])
        else:
            rows = [[title, *(values[index] for values in table.values())] for index, title in enumerate(self._runs)]
            self._text_table.show([("Run", ""), *((name, "") for name in table)], rows, self._links)
        remaining = len(names) - len(table)
        self._more.set_text(
            f"and {remaining} more; search to find them" if remaining else "" if names else "No matches"
        )
        self._more.set_visibility(bool(self._more.text))


async def _images(backend: Backend, comparison: queries.Comparison) -> None:
    """Show images with the same path side by side."""
    pictures = await backend.call(queries.images, comparison.ids)
    if not pictures:
        return
    _section("Images")
    names = {str(run["id"]): str(run["name"] or run["id"]) for run in comparison.runs}
    if len(comparison.runs) > queries.MAX_IMAGE_RUNS:
        ui.label(f"Images of the first {queries.MAX_IMAGE_RUNS} runs.").classes("mlw-faint")
    for path, run_ids in pictures.items():
        ui.label(plain(path, 200)).classes("mlw-mono")
        with ui.element("div").classes("mlw-beside-all"):
            for run_id in run_ids:
                with ui.element("figure").classes("mlw-beside"):
                    image = ui.element("img").props("loading=lazy")
                    file = f"/api/runs/{quote(run_id, safe='')}/outputs/file?path={quote(path, safe='')}"
                    image._props["src"] = full_address(file)
                    image._props["alt"] = f"{path} of run {run_id}"
                    with ui.element("figcaption"):
                        ui.label(plain(names[run_id], 60))


class CodeDiff:
    """Diff between the code of a run and that of the first run."""

    def __init__(self, backend: Backend, comparison: queries.Comparison) -> None:
        self._backend, self._first = backend, comparison.ids[0]
        self._changed = comparison.changed
        self._requested = ""

    def build(self) -> None:
        _section("Code")
        differing = {run: count for run, count in self._changed.items() if count}
        if not differing:
            ui.label("All runs with saved code used the same code.").classes("mlw-faint")
            return
        options = {run: f"{run} ({pluralize(count, 'file')})" for run, count in differing.items()}
        first = next(iter(options))
        field = ui.select(options, label=f"Compare with {plain(self._first, 60)}", value=first)
        field.props("dense outlined options-dense").classes("mlw-compared-code")
        self._lines = ui.column().classes("mlw-full")
        field.on_value_change(lambda event: self._show(str(event.value)))
        ui.timer(0.05, lambda: self._show(first), once=True)

    async def _show(self, run: str) -> None:
        self._requested = run
        comparison = await self._backend.call(code_queries.difference, run, self._first)
        if run != self._requested or self._lines.is_deleted:
            return  # another run has been selected
        self._lines.clear()
        with self._lines:
            if comparison.problem:
                ui.label(comparison.problem).classes("mlw-warn")
            if comparison.lines:
                DiffLines(f"Code of {run} compared with {self._first}", comparison.lines)
