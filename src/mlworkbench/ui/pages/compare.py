"""Any number of runs side by side."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from nicegui import ui

from ...errors import MlwError
from ...report.plain import plain
from ...report.units import counted
from ..answers import code as code_answers
from ..answers import compare as answers
from ..answers.projects import key_of
from ..desk import Desk
from ..parts.addresses import full_address
from ..parts.comparecharts import Curves, Lines, Spread
from ..parts.empty import empty
from ..parts.frame import Here, frame, here
from ..parts.opening import our_page
from ..parts.sheet import DiffLines, Sheet

_ACROSS = 6  # runs that are columns; more are rows
_CHIPS = 24  # runs that are named above
_NAMES = 200  # rows of a table
_CELLS = 10_000
_TITLES = {"parameters": "Parameters", "metrics": "Metrics", "properties": "Properties", "packages": "Packages"}


def register(desk: Desk) -> None:
    @our_page("/compare")
    async def compare(runs: str = "") -> None:
        ids = list(dict.fromkeys(one for one in runs.split(",") if one))
        try:
            found = await desk.ask(answers.compare, ids) if ids else None
        except MlwError as error:
            with frame(desk, "Compare", active="All runs", wide=True):
                _heading("Compare runs")
                empty("error_outline", plain(error.message, 300), plain(error.hint or "", 300))
            return
        where = await desk.ask(lambda _: _project(desk, found))
        with frame(desk, "Compare", where, active="Runs" if where else "All runs", wide=True):
            await _page(desk, found)


def _project(desk: Desk, found: answers.Comparison | None) -> Here | None:
    """Where all of them came from, if that was opened here and is still the same project."""
    if found is None or found.home is None:
        return None
    project, folder = found.home
    try:
        where = here(desk, key_of(Path(folder)))
    except (MlwError, OSError):
        return None
    return where if where.project.id == project else None


async def _page(desk: Desk, found: answers.Comparison | None) -> None:
    if found is None:
        _heading("Compare runs")
        words = "Select two or more runs on the All runs page."
        empty("compare_arrows", "No runs selected", words, "mlw history compare RUN RUN")
        return
    others = await desk.ask(answers.others, found.ids)
    _heading(f"Compare {counted(len(found.runs), 'run')}")
    _chosen(found, others)
    if len(found.runs) < 2:
        empty("compare_arrows", "Only one run selected", "Add another run above.")
        return
    for kind in ("parameters", "metrics"):
        Differing(found, kind).build()
    if not any(found.tables.values()) and not any(found.changed.values()):
        ui.label("No differences found.").classes("mlw-faint")
    if found.series:
        Curves(found).build()
    Spread(found).build()
    Lines(found).build()
    await _images(desk, found)
    for kind in ("properties", "packages"):
        Differing(found, kind).build()
    if found.unknown_packages:
        words = f"Packages not compared: not recorded for {_some(found.unknown_packages)}."
        ui.label(words).classes("mlw-faint")
    Code(desk, found).build()


def _heading(words: str) -> None:
    with ui.element("h1"):
        ui.label(words)


def _section(words: str) -> None:
    with ui.element("h2"):
        ui.label(words)


def _some(names: Sequence[str]) -> str:
    return ", ".join(plain(one, 60) for one in names[:5]) + (f", and {len(names) - 5} more" if len(names) > 5 else "")


def _address(ids: Sequence[str]) -> str:
    return f"/compare?runs={quote(','.join(ids), safe=',')}"


def _run_address(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


def _chosen(found: answers.Comparison, others: dict[str, str]) -> None:
    """The runs, each with a way to take it out; and one to add others."""
    ids = found.ids
    with ui.element("div").classes("mlw-compared").props('role=group aria-label="Compared runs"'):
        for one in found.runs[:_CHIPS]:
            with ui.element("span").classes("mlw-compared-run"):
                ui.link(one["name"] or one["id"], _run_address(one["id"])).classes("mlw-grid-link")
                rest = [other for other in ids if other != one["id"]]
                button = ui.button(icon="close", on_click=lambda rest=rest: ui.navigate.to(_address(rest)), color=None)
                button.props("flat dense round size=xs").classes("mlw-compared-out")
                button._props["aria-label"] = f"Remove {one['id']}"
        if len(ids) > _CHIPS:
            ui.label(f"and {len(ids) - _CHIPS} more").classes("mlw-faint")
        field = ui.select(others, label="Add a run", with_input=True).props("dense outlined options-dense")
        field.classes("mlw-compared-add")
        field.on_value_change(lambda event: ui.navigate.to(_address([*ids, str(event.value)])) if event.value else None)
    words = shlex.join(("mlw", "history", "compare", *ids[:6])) + (" …" if len(ids) > 6 else "")
    ui.label(words).classes("mlw-mono mlw-faint mlw-said")


class Differing:
    """What differs, of one kind. Few runs are columns, many are rows; of very many names, those that are sought."""

    def __init__(self, found: answers.Comparison, kind: str) -> None:
        self._title = _TITLES[kind]
        self._table = found.tables[kind]
        self._runs = [f"{one['name']} ({one['id']})" if one["name"] else str(one["id"]) for one in found.runs]
        self._links = [_run_address(one) for one in found.ids]
        self._across = len(self._runs) <= _ACROSS
        self._most = _NAMES if self._across else max(20, _CELLS // len(self._runs))

    def build(self) -> None:
        if not self._table:
            return
        _section(f"{self._title} that differ")
        if len(self._table) > self._most:
            field = ui.input(f"Search {self._title.lower()}").props("outlined dense clearable debounce=250")
            field.classes("mlw-run-search").on_value_change(lambda event: self._draw(str(event.value or "")))
        self._sheet = Sheet(self._title)
        self._more = ui.label().classes("mlw-faint")
        self._draw("")

    def _draw(self, text: str) -> None:
        names = [name for name in self._table if text.lower() in name.lower()]
        table = {name: self._table[name] for name in names[: self._most]}
        if self._across:
            head = [(self._title, ""), *zip(self._runs, self._links, strict=True)]
            self._sheet.show(head, [[name, *values] for name, values in table.items()])
        else:
            rows = [[title, *(values[at] for values in table.values())] for at, title in enumerate(self._runs)]
            self._sheet.show([("Run", ""), *((name, "") for name in table)], rows, self._links)
        left = len(names) - len(table)
        self._more.set_text(f"and {left} more; search to find them" if left else "" if names else "No matches")
        self._more.set_visibility(bool(self._more.text))


async def _images(desk: Desk, found: answers.Comparison) -> None:
    """The same path of each run, side by side."""
    pictures = await desk.ask(answers.images, found.ids)
    if not pictures:
        return
    _section("Images")
    names = {str(one["id"]): str(one["name"] or one["id"]) for one in found.runs}
    if len(found.runs) > answers.PICTURED:
        ui.label(f"Images of the first {answers.PICTURED} runs.").classes("mlw-faint")
    for path, having in pictures.items():
        ui.label(plain(path, 200)).classes("mlw-mono")
        with ui.element("div").classes("mlw-beside-all"):
            for one in having:
                with ui.element("figure").classes("mlw-beside"):
                    image = ui.element("img").props("loading=lazy")
                    file = f"/api/runs/{quote(one, safe='')}/outputs/file?path={quote(path, safe='')}"
                    image._props["src"] = full_address(file)
                    image._props["alt"] = f"{path} of run {one}"
                    with ui.element("figcaption"):
                        ui.label(plain(names[one], 60))


class Code:
    """The code of one of the runs against that of the first."""

    def __init__(self, desk: Desk, found: answers.Comparison) -> None:
        self._desk, self._first = desk, found.ids[0]
        self._changed = found.changed
        self._asked = ""

    def build(self) -> None:
        _section("Code")
        differing = {run: count for run, count in self._changed.items() if count}
        if not differing:
            ui.label("All runs with saved code used the same code.").classes("mlw-faint")
            return
        options = {run: f"{run} ({counted(count, 'file')})" for run, count in differing.items()}
        first = next(iter(options))
        field = ui.select(options, label=f"Compare with {plain(self._first, 60)}", value=first)
        field.props("dense outlined options-dense").classes("mlw-compared-code")
        self._lines = ui.column().classes("mlw-full")
        field.on_value_change(lambda event: self._show(str(event.value)))
        ui.timer(0.05, lambda: self._show(first), once=True)

    async def _show(self, run: str) -> None:
        self._asked = run
        found = await self._desk.ask(code_answers.difference, run, self._first)
        if run != self._asked or self._lines.is_deleted:
            return  # another one was chosen meanwhile
        self._lines.clear()
        with self._lines:
            if found.problem:
                ui.label(found.problem).classes("mlw-warn")
            if found.lines:
                DiffLines(f"Code of {run} compared with {self._first}", found.lines)
