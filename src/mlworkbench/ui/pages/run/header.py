"""Above the tabs: what the run is, how it stands, and what can be done with it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from nicegui import ui

from ....report.plain import plain
from ....report.units import duration
from ...answers import run as answers
from ...parts import rundialogs
from ...parts.status import status
from ...parts.when import When
from . import deeds
from .context import Context


def show(context: Context) -> None:
    run = context.run
    with ui.row().classes("mlw-run-title"):
        with ui.element("h1"):
            ui.label(plain(run.name or run.id, 120))
        status(run.status.value, answers.ending(run)).props("role=status")
        if run.noted.archived:
            ui.label("archived").classes("mlw-run-word")
        ui.space()
        _buttons(context)
    _lines(context)
    if context.facts.lost:
        with ui.row().classes("mlw-run-note mlw-warn").props("role=alert"):
            ui.icon("cloud_off").props("aria-hidden=true")
            ui.label(f"{context.facts.lost}. The run continues on the target; this page shows its last known state.")


def _lines(context: Context) -> None:
    run = context.run
    with ui.row().classes("mlw-run-line"):
        if run.name:
            ui.label(run.id).classes("mlw-mono")
        ui.label(context.facts.command).classes("mlw-mono mlw-said")
    with ui.row().classes("mlw-run-line mlw-faint"):
        ui.label(f"on {plain(run.spec.compute.name, 80)}")
        ui.label("·").props("aria-hidden=true")
        When(run.started or run.spec.created)
        if run.started is not None:
            ui.label("·").props("aria-hidden=true")
            _lasting(context)
        if run.spec.parent:
            ui.label("·").props("aria-hidden=true")
            ui.link(f"part of {plain(run.spec.parent, 80)}", f"/runs/{quote(run.spec.parent, safe='')}")
        for tag in run.tags[:20]:
            ui.label(plain(tag, 60)).classes("mlw-run-word")
    if run.noted.note:
        lines = [plain(line, 500) for line in run.noted.note.splitlines()]
        ui.label("\n".join(lines[:30])).classes("mlw-said mlw-run-remark")


def _lasting(context: Context) -> None:
    run = context.run
    if run.duration is not None:
        ui.label(f"took {duration(run.duration)}")
        return
    label = ui.label("")

    def tell() -> None:
        label.set_text(f"running for {duration(time.time() - (context.run.started or time.time()))}")

    tell()
    if not run.status.final:
        ui.timer(1.0, tell, immediate=False)


def _buttons(context: Context) -> None:
    run, desk = context.run, context.desk
    if not run.status.final and not context.facts.outside:
        _button("Cancel", "stop", _then(context, lambda: rundialogs.cancel(desk, run.id)))
    if not context.facts.outside and not run.spec.inside:
        _button("Rerun", "replay", _then(context, lambda: rundialogs.rerun(desk, run.id)))
    _button("Compare", "compare_arrows", lambda: ui.navigate.to(f"/compare?runs={quote(run.id, safe='')}"))
    if run.spec.snapshot:
        _button("Restore", "settings_backup_restore", lambda: deeds.restore(context))
    with ui.button("More", icon="more_horiz").props("flat dense no-caps"), ui.menu().props("auto-close"):
        _menu(context)


def _menu(context: Context) -> None:
    run, desk = context.run, context.desk
    archived = run.noted.archived
    things: list[tuple[str, str, Callable[[], Awaitable[object]]]] = [
        ("Tag…", "sell", _then(context, lambda: rundialogs.tag(desk, [run.id]))),
        ("Rename…", "edit", _then(context, lambda: rundialogs.rename(desk, run.id))),
        ("Note…", "sticky_note_2", _then(context, lambda: rundialogs.note(desk, run.id))),
        ("Download outputs…", "download", lambda: deeds.download(context)),
        ("Diagnostics…", "medical_information", lambda: deeds.diagnostics(context)),
        (
            "Unarchive" if archived else "Archive",
            "unarchive" if archived else "archive",
            _then(context, lambda: rundialogs.archive(desk, [run.id], undo=archived)),
        ),
        ("Delete…", "delete", lambda: _delete(context)),
    ]
    for title, icon, deed in things:
        with ui.item(on_click=deed).classes("mlw-run-menu-item").props("dense"):
            ui.icon(icon).props("aria-hidden=true")
            ui.label(title)


async def _delete(context: Context) -> None:
    if await rundialogs.remove(context.desk, [context.run.id]):
        ui.navigate.to(f"{context.where.address}/runs" if context.where else "/runs")


def _then(context: Context, deed: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[object]]:
    """Afterwards the page shows what has changed."""

    async def done() -> None:
        if await deed():
            await context.again()

    return done


def _button(title: str, icon: str, deed: Callable[[], object]) -> None:
    ui.button(title, icon=icon, on_click=deed).props("flat dense no-caps")
