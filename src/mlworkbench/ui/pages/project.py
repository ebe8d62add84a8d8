"""Project dashboard: run bar, recent runs, targets, problems, and readme."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from ...model import Problem, Run
from ...report import units
from ...report.value_format import format_value
from ...sanitize import plain
from ..backend import Backend
from ..components.empty_state import empty_state
from ..components.page_frame import ProjectScope, frame
from ..components.page_setup import project_page
from ..components.problem_list import problem_list
from ..components.readme_view import NodeTree, ReadmeView, parse_readme
from ..components.run_bar import run_bar
from ..components.status_badge import status_badge
from ..components.timestamp import Timestamp
from ..queries import dashboard
from ..queries.files import Content

_POLL_INTERVAL = 1.0  # seconds between polls


def register(backend: Backend) -> None:
    @project_page(backend, "", "Project")
    async def project(scope: ProjectScope) -> None:
        with frame(backend, scope.project.name, scope, active="Dashboard"):
            await backend.call(lambda _: backend.projects.add(scope.project.root))
            text = await backend.call(lambda _: dashboard.readme(scope.project.root))
            tree = None if text is None else await backend.call(lambda _: parse_readme(text.text, scope.key, text.path))
            _head(scope, text)
            await run_bar(backend, scope)
            await UnsavedFiles(backend, scope).refresh()
            with ui.element("div").classes("mlw-dash"):
                with ui.element("section").classes("mlw-column-wide"):
                    await RecentRuns(backend, scope).refresh()
                    _readme(scope, text.path if text else "", tree)
                with ui.element("section").classes("mlw-column-narrow"):
                    await _targets(backend, scope)
                    Problems(backend, scope)


def _head(scope: ProjectScope, text: Content | None) -> None:
    with ui.column().classes("mlw-head"):
        with ui.element("h1"):
            ui.label(plain(scope.project.name, 100))
        ui.label(plain(str(scope.project.root), 300)).classes("mlw-mono mlw-faint")
        description = dashboard.description(text.text) if text else ""
        if description:
            ui.label(plain(description, 300)).classes("mlw-said")


def _heading(text: str) -> None:
    with ui.element("h2"):
        ui.label(text)


class UnsavedFiles:
    """Warning that lists the files that Run will save first."""

    def __init__(self, backend: Backend, scope: ProjectScope) -> None:
        self._backend, self._scope = backend, scope
        self._label = ui.label("").classes("mlw-warn mlw-said mlw-small mlw-unsaved-first").props("role=status")
        ui.timer(_POLL_INTERVAL, self.refresh)

    async def refresh(self) -> None:
        paths = await self._backend.call(lambda _: list(self._backend.drafts.for_project(self._scope.key)))
        self._label.set_text(dashboard.unsaved_message(paths))
        self._label.set_visibility(bool(paths))


class RecentRuns:
    """Live table of recent runs."""

    def __init__(self, backend: Backend, scope: ProjectScope) -> None:
        self._backend = backend
        self._scope = scope
        self._version = -1
        self._shown: Any = None
        self._durations: list[tuple[ui.label, float]] = []  # duration labels and start times of active runs
        self._values: dict[tuple[str, str], ui.label] = {}
        with ui.row().classes("mlw-between"):
            _heading("Recent runs")
            ui.link("All runs in this project", f"{scope.address}/runs")
        self._box = ui.element("div").classes("mlw-recent")
        ui.timer(_POLL_INTERVAL, self._poll)

    async def refresh(self) -> None:
        self._version = self._backend.run_poller.version
        self._show(await self._backend.call(dashboard.recent, self._scope.project.id))

    async def _poll(self) -> None:
        if self._version != self._backend.run_poller.version:
            await self.refresh()
        for label, started in self._durations:
            label.set_text(units.duration(max(0.0, time.time() - started)))

    def _show(self, runs: list[Run]) -> None:
        names = dashboard.shown_metrics(runs)
        state = [
            (run.id, run.name, run.status, run.ending, run.duration, run.started, run.spec.created) for run in runs
        ]
        if (state, names) == self._shown:
            for run in runs:
                for name in names:
                    self._values[run.id, name].set_text(_value(run, name))
            return
        self._shown = (state, names)
        self._durations, self._values = [], {}
        self._box.clear()
        with self._box:
            if not runs:
                empty_state(
                    "directions_run", "No runs yet", "Select a script above and click Run.", "mlw submit train.py"
                )
                return
            with ui.element("table").classes("mlw-table"):
                with ui.element("thead"), ui.element("tr"):
                    for title in (
                        "Run",
                        "Status",
                        *(plain(name, 24) for name in names),
                        "Script",
                        "Target",
                        "Started",
                        "Duration",
                    ):
                        with ui.element("th").props("scope=col"):
                            ui.label(title)
                with ui.element("tbody"):
                    for run in runs:
                        self._row(run, names)

    def _row(self, run: Run, names: list[str]) -> None:
        with ui.element("tr"):
            _run_cells(run)
            for name in names:
                with ui.element("td").classes("mlw-number"):
                    self._values[run.id, name] = ui.label(_value(run, name))
            _script_cells(run)
            with ui.element("td").classes("mlw-number"):
                duration = ui.label(units.duration(run.duration) if run.duration is not None else "–")
            if run.duration is None and run.started is not None and not run.status.final:
                duration.set_text(units.duration(max(0.0, time.time() - run.started)))
                self._durations.append((duration, run.started))


def _value(run: Run, name: str) -> str:
    value = run.metrics.get(name)
    return format_value(value, 14) if value is not None else "–"


def _run_cells(run: Run) -> None:
    with ui.element("td"):
        ui.link(plain(run.name or run.id, 60), f"/runs/{run.id}")
    with ui.element("td"):
        status_badge(run.status.value)


def _script_cells(run: Run) -> None:
    script = " ".join((run.spec.entry.name, *run.spec.entry.arguments))
    with ui.element("td").classes("mlw-cut mlw-mono"):
        ui.label(plain(script, 400))._props["title"] = plain(script, 400)
    with ui.element("td"):
        ui.label(plain(run.spec.compute.name, 40))
    with ui.element("td"):
        Timestamp(run.spec.created)


def _readme(scope: ProjectScope, path: str, tree: NodeTree | None) -> None:
    if tree is None:
        _heading("Readme")
        with ui.row().classes("mlw-faint"):
            ui.label("This project has no readme.md. Create one in")
            ui.link("Files", f"{scope.address}/files")
        return
    with ui.row().classes("mlw-between"):
        _heading(plain(path, 60))
        ui.link("Edit", f"{scope.address}/files?" + urlencode({"path": path}))
    with ui.element("article").classes("mlw-card mlw-readme-card"):
        ReadmeView(tree)


async def _targets(backend: Backend, scope: ProjectScope) -> None:
    targets = await backend.call(lambda _: dashboard.targets(scope.project))
    with ui.row().classes("mlw-between"):
        _heading("Targets")
        ui.link("Manage targets", f"{scope.address}/targets")
    if not targets:
        ui.label("No targets yet. Attach one on the Targets page.").classes("mlw-faint")
    with ui.element("ul").classes("mlw-list"):
        for target in targets:
            with ui.element("li"):
                ui.label(plain(target.name, 60)).classes("mlw-strong")
                details = target.problem or f"{target.type}, {target.place}"
                ui.label(plain(details, 200)).classes("mlw-bad mlw-said" if target.problem else "mlw-faint mlw-said")


class Problems:
    """Results of ``mlw project validate``.

    The command reads all files, so it starts after the page has loaded.
    """

    def __init__(self, backend: Backend, scope: ProjectScope) -> None:
        self._backend = backend
        self._scope = scope
        with ui.row().classes("mlw-between"):
            _heading("Problems")
            button = ui.button("Check again", icon="refresh", on_click=self.check).props("flat dense no-caps")
        button.classes("mlw-small")
        self._box = ui.element("div").props("role=status")
        with self._box:
            ui.label("Checking…").classes("mlw-faint")
        ui.timer(0.05, self.check, once=True)

    async def check(self) -> None:
        root = self._scope.project.root
        operation = await self._backend.operations.start("project", "validate", "--output", "json", cwd=root)
        await operation.done.wait()
        rows = operation.result if isinstance(operation.result, list) else None
        problems = [_parse_problem(row) for row in rows or () if isinstance(row, dict)]
        self._box.clear()
        with self._box:
            error = operation.error() if rows is None else None
            if error is not None:
                ui.label(plain(error.message, 500)).classes("mlw-bad mlw-said")
            elif not problems:
                ui.label("No problems found.").classes("mlw-faint")
            else:
                problem_list(problems, self._open_file, with_file=True)
            ui.label("mlw project validate").classes("mlw-mono mlw-faint mlw-small")

    def _open_file(self, problem: Problem) -> None:
        line = {"line": str(problem.line)} if problem.line else {}
        ui.navigate.to(f"{self._scope.address}/files?" + urlencode({"path": problem.path, **line}))


def _parse_problem(row: dict[str, Any]) -> Problem:
    line = row.get("line")
    return Problem(
        str(row.get("file") or ""),
        line if isinstance(line, int) else None,
        str(row.get("severity") or "error"),
        str(row.get("message") or ""),
        str(row["hint"]) if row.get("hint") else None,
    )
