"""The jobs pane: what runs now, whoever started it, and what ended a short while ago."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nicegui import ui
from nicegui.element import Element

from ...errors import MlwError
from ...report.plain import plain
from ...report.units import counted, duration
from ..answers import runs as answers
from ..desk import Desk
from . import rundialogs
from .status import status
from .when import When

if TYPE_CHECKING:
    from .frame import Here

_PAUSE = 1.5  # seconds between looks


def jobs(desk: Desk, where: Here | None) -> None:
    """The content of the pane; it is asked for only while the pane is open."""
    Pane(desk, where).build()


class Escape(Element, component="jobs.js"):
    """Tells of the key wherever the focus is, unless a dialog or a menu is what it is meant for."""


class Pane:
    """Everything is shown anew only if something has changed: what is focused stays so otherwise."""

    def __init__(self, desk: Desk, where: Here | None) -> None:
        self._desk = desk
        self._project = where.project.id if where else None
        self._everywhere = where is None
        self._seen: object = None

    def build(self) -> None:
        with ui.row().classes("mlw-jobs-head"):
            ui.label("Jobs").classes("mlw-jobs-title").props("role=heading aria-level=2")
            ui.space()
            if self._project is not None:
                switch = ui.switch("All projects").props("dense")
                switch.on_value_change(lambda event: self._widen(bool(event.value)))
        self._body = ui.column().classes("mlw-jobs-body").props('aria-live=polite role=region aria-label="Jobs"')
        self._drawer = self._body.parent_slot.parent if self._body.parent_slot else None
        Escape().on("escape", self._close)
        ui.timer(_PAUSE, self._look, immediate=False)

    def _close(self) -> None:
        if isinstance(self._drawer, ui.right_drawer) and self._drawer.value:
            self._drawer.hide()

    async def _widen(self, everywhere: bool) -> None:
        self._everywhere = everywhere
        self._seen = None
        await self._look()

    async def _look(self) -> None:
        if not getattr(self._drawer, "value", True):  # nobody sees it
            return
        going = [(one.id, one.words) for one in self._desk.errands.going()]
        try:
            now = (await self._desk.ask(answers.generation), self._desk.live.version, going)
            if now == self._seen:
                return
            found = await self._desk.ask(answers.jobs, None if self._everywhere else self._project)
        except MlwError as error:
            self._body.clear()
            with self._body:
                ui.label(plain(error.message, 300)).classes("mlw-bad")
            return
        self._seen = now
        self._show(found)

    def _show(self, found: answers.Jobs) -> None:
        self._body.clear()
        with self._body:
            for one in found.going:
                self._job(one)
            if found.waiting:
                ui.label(f"{counted(found.waiting, 'more sweep run')} queued").classes("mlw-faint")
            if not found.going:
                ui.label("No active runs").classes("mlw-faint")
            self._errands()
            if found.lately:
                ui.label("Recently finished").classes("mlw-jobs-section").props("role=heading aria-level=3")
                for one in found.lately:
                    self._job(one)

    def _job(self, one: dict[str, Any]) -> None:
        with ui.element("div").classes("mlw-job"):
            with ui.row().classes("mlw-job-line"):
                ui.link(one["name"] or one["id"], f"/runs/{quote(one['id'], safe='')}").classes("mlw-job-link")
                ui.space()
                if not one["final"]:
                    button = ui.button(
                        icon="stop_circle", on_click=lambda: rundialogs.cancel(self._desk, one["id"]), color=None
                    )
                    button.props("flat dense round size=sm").classes("mlw-action")
                    button._props["aria-label"] = f"Cancel run {one['id']}"
            with ui.row().classes("mlw-job-line"):
                status(one["status"], one["ending"])
                ui.space()
                When(one["started"] or one["created"])
            ui.label(f"{one['script']} [{one['number']}]").classes("mlw-mono mlw-job-facts")
            facts = [one["target"], one.get("latest") or "", one["project"] if self._everywhere else ""]
            if one["duration"] is not None:
                facts.append(duration(one["duration"]))
            ui.label(" · ".join(word for word in facts if word)).classes("mlw-faint mlw-job-facts")

    def _errands(self) -> None:
        going = self._desk.errands.going()
        if not going:
            return
        ui.label("Operations in progress").classes("mlw-jobs-section").props("role=heading aria-level=3")
        for errand in going:
            with ui.element("div").classes("mlw-job"):
                ui.label(plain(shlex.join(("mlw", *errand.words)), 200)).classes("mlw-mono mlw-said")
                last = errand.lines[-1] if errand.lines else ""
                ui.label(
                    f"running for {duration(time.time() - errand.began)}" + (f": {plain(last, 120)}" if last else "")
                ).classes("mlw-faint mlw-said")
