"""The dashboard of a project: run bar, last runs, targets, problems, readme."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from ...model import Problem, Run
from ...report import units
from ...report.plain import plain
from ...report.values import shown
from ..answers import dashboard
from ..answers.files import Content
from ..desk import Desk
from ..parts.empty import empty
from ..parts.frame import Here, frame
from ..parts.opening import project_page
from ..parts.problems import problem_list
from ..parts.readme import Readme, Tree, tree_of
from ..parts.runbar import runbar
from ..parts.status import status
from ..parts.when import When

_PAUSE = 1.0  # seconds between two looks whether a run stands otherwise


def register(desk: Desk) -> None:
    @project_page(desk, "", "Project")
    async def project(where: Here) -> None:
        with frame(desk, where.project.name, where, active="Dashboard"):
            await desk.ask(lambda _: desk.projects.remember(where.project.root))
            text = await desk.ask(lambda _: dashboard.readme(where.project.root))
            tree = None if text is None else await desk.ask(lambda _: tree_of(text.text, where.key, text.path))
            _head(where, text)
            await runbar(desk, where)
            await Unsaved(desk, where).look()
            with ui.element("div").classes("mlw-dash"):
                with ui.element("section").classes("mlw-column-wide"):
                    await Recent(desk, where).begin()
                    _readme(where, text.path if text else "", tree)
                with ui.element("section").classes("mlw-column-narrow"):
                    await _targets(desk, where)
                    Problems(desk, where)


def _head(where: Here, text: Content | None) -> None:
    with ui.column().classes("mlw-head"):
        with ui.element("h1"):
            ui.label(plain(where.project.name, 100))
        ui.label(plain(str(where.project.root), 300)).classes("mlw-mono mlw-faint")
        said = dashboard.description(text.text) if text else ""
        if said:
            ui.label(plain(said, 300)).classes("mlw-said")


def _heading(words: str) -> None:
    with ui.element("h2"):
        ui.label(words)


class Unsaved:
    """Which files Run will save first; said before it does."""

    def __init__(self, desk: Desk, where: Here) -> None:
        self._desk, self._where = desk, where
        self._label = ui.label("").classes("mlw-warn mlw-said mlw-small mlw-unsaved-first").props("role=status")
        ui.timer(_PAUSE, self.look)

    async def look(self) -> None:
        found = await self._desk.ask(lambda _: list(self._desk.drafts.of(self._where.key)))
        self._label.set_text(dashboard.unsaved(found))
        self._label.set_visibility(bool(found))


class Recent:
    """The last runs, as they stand now."""

    def __init__(self, desk: Desk, where: Here) -> None:
        self._desk = desk
        self._where = where
        self._version = -1
        self._shown: Any = None
        self._lasting: list[tuple[ui.label, float]] = []  # of those that still run
        self._values: dict[tuple[str, str], ui.label] = {}
        with ui.row().classes("mlw-between"):
            _heading("Recent runs")
            ui.link("All runs in this project", f"{where.address}/runs")
        self._box = ui.element("div").classes("mlw-recent")
        ui.timer(_PAUSE, self._look)

    async def begin(self) -> None:
        self._version = self._desk.live.version
        self._show(await self._desk.ask(dashboard.recent, self._where.project.id))

    async def _look(self) -> None:
        if self._version != self._desk.live.version:
            await self.begin()
        for label, started in self._lasting:
            label.set_text(units.duration(max(0.0, time.time() - started)))

    def _show(self, runs: list[Run]) -> None:
        names = dashboard.measured(runs)
        facts = [
            (run.id, run.name, run.status, run.ending, run.duration, run.started, run.spec.created) for run in runs
        ]
        if (facts, names) == self._shown:
            for run in runs:
                for name in names:
                    self._values[run.id, name].set_text(_value(run, name))
            return
        self._shown = (facts, names)
        self._lasting, self._values = [], {}
        self._box.clear()
        with self._box:
            if not runs:
                empty("directions_run", "No runs yet", "Select a script above and click Run.", "mlw submit train.py")
                return
            with ui.element("table").classes("mlw-table"):
                with ui.element("thead"), ui.element("tr"):
                    for words in (
                        "Run",
                        "Status",
                        *(plain(name, 24) for name in names),
                        "Script",
                        "Target",
                        "Started",
                        "Duration",
                    ):
                        with ui.element("th").props("scope=col"):
                            ui.label(words)
                with ui.element("tbody"):
                    for run in runs:
                        self._row(run, names)

    def _row(self, run: Run, names: list[str]) -> None:
        with ui.element("tr"):
            _who(run)
            for name in names:
                with ui.element("td").classes("mlw-number"):
                    self._values[run.id, name] = ui.label(_value(run, name))
            _how(run)
            with ui.element("td").classes("mlw-number"):
                lasting = ui.label(units.duration(run.duration) if run.duration is not None else "–")
            if run.duration is None and run.started is not None and not run.status.final:
                lasting.set_text(units.duration(max(0.0, time.time() - run.started)))
                self._lasting.append((lasting, run.started))


def _value(run: Run, name: str) -> str:
    value = run.metrics.get(name)
    return shown(value, 14) if value is not None else "–"


def _who(run: Run) -> None:
    with ui.element("td"):
        ui.link(plain(run.name or run.id, 60), f"/runs/{run.id}")
    with ui.element("td"):
        status(run.status.value)


def _how(run: Run) -> None:
    script = " ".join((run.spec.entry.name, *run.spec.entry.arguments))
    with ui.element("td").classes("mlw-cut mlw-mono"):
        ui.label(plain(script, 400))._props["title"] = plain(script, 400)
    with ui.element("td"):
        ui.label(plain(run.spec.compute.name, 40))
    with ui.element("td"):
        When(run.spec.created)


def _readme(where: Here, path: str, tree: Tree | None) -> None:
    if tree is None:
        _heading("Readme")
        with ui.row().classes("mlw-faint"):
            ui.label("This project has no readme.md. Create one in")
            ui.link("Files", f"{where.address}/files")
        return
    with ui.row().classes("mlw-between"):
        _heading(plain(path, 60))
        ui.link("Edit", f"{where.address}/files?" + urlencode({"path": path}))
    with ui.element("article").classes("mlw-card mlw-readme-card"):
        Readme(tree)


async def _targets(desk: Desk, where: Here) -> None:
    found = await desk.ask(lambda _: dashboard.targets(where.project))
    with ui.row().classes("mlw-between"):
        _heading("Targets")
        ui.link("Manage targets", f"{where.address}/targets")
    if not found:
        ui.label("No targets yet. Attach one on the Targets page.").classes("mlw-faint")
    with ui.element("ul").classes("mlw-list"):
        for one in found:
            with ui.element("li"):
                ui.label(plain(one.name, 60)).classes("mlw-strong")
                words = one.problem or f"{one.type}, {one.place}"
                ui.label(plain(words, 200)).classes("mlw-bad mlw-said" if one.problem else "mlw-faint mlw-said")


class Problems:
    """What ``mlw project validate`` says; asked when the page is there, for it looks into all files."""

    def __init__(self, desk: Desk, where: Here) -> None:
        self._desk = desk
        self._where = where
        with ui.row().classes("mlw-between"):
            _heading("Problems")
            again = ui.button("Check again", icon="refresh", on_click=self.ask).props("flat dense no-caps")
        again.classes("mlw-small")
        self._box = ui.element("div").props("role=status")
        with self._box:
            ui.label("Checking…").classes("mlw-faint")
        ui.timer(0.05, self.ask, once=True)

    async def ask(self) -> None:
        root = self._where.project.root
        errand = await self._desk.errands.start("project", "validate", "--output", "json", cwd=root)
        await errand.done.wait()
        rows = errand.answer if isinstance(errand.answer, list) else None
        found = [_problem(one) for one in rows or () if isinstance(one, dict)]
        self._box.clear()
        with self._box:
            error = errand.error() if rows is None else None
            if error is not None:
                ui.label(plain(error.message, 500)).classes("mlw-bad mlw-said")
            elif not found:
                ui.label("No problems found.").classes("mlw-faint")
            else:
                problem_list(found, self._go, with_file=True)
            ui.label("mlw project validate").classes("mlw-mono mlw-faint mlw-small")

    def _go(self, problem: Problem) -> None:
        line = {"line": str(problem.line)} if problem.line else {}
        ui.navigate.to(f"{self._where.address}/files?" + urlencode({"path": problem.path, **line}))


def _problem(told: dict[str, Any]) -> Problem:
    line = told.get("line")
    return Problem(
        str(told.get("file") or ""),
        line if isinstance(line, int) else None,
        str(told.get("severity") or "error"),
        str(told.get("message") or ""),
        str(told["hint"]) if told.get("hint") else None,
    )
