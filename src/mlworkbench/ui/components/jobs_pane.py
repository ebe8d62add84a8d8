"""Jobs pane: active runs and operations, and recently finished runs."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nicegui import ui
from nicegui.element import Element

from ...errors import MlwError
from ...report.units import duration, pluralize
from ...sanitize import plain
from ..backend import Backend
from ..queries import runs as queries
from . import run_dialogs
from .status_badge import status_badge
from .timestamp import Timestamp

if TYPE_CHECKING:
    from .page_frame import ProjectScope

_POLL_INTERVAL = 1.5  # seconds between polls


def jobs_pane(backend: Backend, scope: ProjectScope | None) -> None:
    """Fill the jobs pane. Data is loaded only while the pane is open."""
    JobsPane(backend, scope).build()


class EscapeListener(Element, component="jobs.js"):
    """Element that emits ``escape`` regardless of focus, unless a dialog or menu handles the key."""


class JobsPane:
    """Content of the jobs pane, redrawn only when something has changed, so that focus is kept."""

    def __init__(self, backend: Backend, scope: ProjectScope | None) -> None:
        self._backend = backend
        self._project = scope.project.id if scope else None
        self._all_projects = scope is None
        self._version: object = None

    def build(self) -> None:
        with ui.row().classes("mlw-jobs-head"):
            ui.label("Jobs").classes("mlw-jobs-title").props("role=heading aria-level=2")
            ui.space()
            if self._project is not None:
                switch = ui.switch("All projects").props("dense")
                switch.on_value_change(lambda event: self._set_scope(bool(event.value)))
        self._body = ui.column().classes("mlw-jobs-body").props('aria-live=polite role=region aria-label="Jobs"')
        self._drawer = self._body.parent_slot.parent if self._body.parent_slot else None
        EscapeListener().on("escape", self._close)
        ui.timer(_POLL_INTERVAL, self._poll, immediate=False)

    def _close(self) -> None:
        if isinstance(self._drawer, ui.right_drawer) and self._drawer.value:
            self._drawer.hide()

    async def _set_scope(self, all_projects: bool) -> None:
        self._all_projects = all_projects
        self._version = None
        await self._poll()

    async def _poll(self) -> None:
        if not getattr(self._drawer, "value", True):  # the pane is closed
            return
        operations = [(operation.id, operation.arguments) for operation in self._backend.operations.running()]
        try:
            version = (await self._backend.call(queries.generation), self._backend.run_poller.version, operations)
            if version == self._version:
                return
            jobs = await self._backend.call(queries.jobs, None if self._all_projects else self._project)
        except MlwError as error:
            self._body.clear()
            with self._body:
                ui.label(plain(error.message, 300)).classes("mlw-bad")
            return
        self._version = version
        self._show(jobs)

    def _show(self, jobs: queries.Jobs) -> None:
        self._body.clear()
        with self._body:
            for run in jobs.running:
                self._job(run)
            if jobs.waiting:
                ui.label(f"{pluralize(jobs.waiting, 'more sweep run')} queued").classes("mlw-faint")
            if not jobs.running:
                ui.label("No active runs").classes("mlw-faint")
            self._show_operations()
            if jobs.recent:
                ui.label("Recently finished").classes("mlw-jobs-section").props("role=heading aria-level=3")
                for run in jobs.recent:
                    self._job(run)

    def _job(self, run: dict[str, Any]) -> None:
        with ui.element("div").classes("mlw-job"):
            with ui.row().classes("mlw-job-line"):
                ui.link(run["name"] or run["id"], f"/runs/{quote(run['id'], safe='')}").classes("mlw-job-link")
                ui.space()
                if not run["final"]:
                    button = ui.button(
                        icon="stop_circle", on_click=lambda: run_dialogs.cancel(self._backend, run["id"]), color=None
                    )
                    button.props("flat dense round size=sm").classes("mlw-action")
                    button._props["aria-label"] = f"Cancel run {run['id']}"
            with ui.row().classes("mlw-job-line"):
                status_badge(run["status"], run["ending"])
                ui.space()
                Timestamp(run["started"] or run["created"])
            ui.label(f"{run['script']} [{run['number']}]").classes("mlw-mono mlw-job-facts")
            facts = [run["target"], run.get("latest") or "", run["project"] if self._all_projects else ""]
            if run["duration"] is not None:
                facts.append(duration(run["duration"]))
            ui.label(" · ".join(fact for fact in facts if fact)).classes("mlw-faint mlw-job-facts")

    def _show_operations(self) -> None:
        operations = self._backend.operations.running()
        if not operations:
            return
        ui.label("Operations in progress").classes("mlw-jobs-section").props("role=heading aria-level=3")
        for operation in operations:
            with ui.element("div").classes("mlw-job"):
                ui.label(plain(shlex.join(("mlw", *operation.arguments)), 200)).classes("mlw-mono mlw-said")
                last = operation.lines[-1] if operation.lines else ""
                ui.label(
                    f"running for {duration(time.time() - operation.started)}"
                    + (f": {plain(last, 120)}" if last else "")
                ).classes("mlw-faint mlw-said")
