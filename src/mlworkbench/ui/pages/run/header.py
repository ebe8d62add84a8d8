"""Header of the run page: title, status, and actions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from nicegui import ui

from ....report.units import duration
from ....sanitize import plain
from ...components import run_dialogs
from ...components.status_badge import status_badge
from ...components.timestamp import Timestamp
from ...queries import run as queries
from . import actions
from .page_context import RunPageContext


def show(context: RunPageContext) -> None:
    run = context.run
    with ui.row().classes("mlw-run-title"):
        with ui.element("h1"):
            ui.label(plain(run.name or run.id, 120))
        status_badge(run.status.value, queries.ending(run)).props("role=status")
        if run.noted.archived:
            ui.label("archived").classes("mlw-run-word")
        ui.space()
        _buttons(context)
    _lines(context)
    if context.facts.contact_problem:
        with ui.row().classes("mlw-run-note mlw-warn").props("role=alert"):
            ui.icon("cloud_off").props("aria-hidden=true")
            state = "The run continues on the target; this page shows its last known state."
            ui.label(f"{context.facts.contact_problem}. {state}")


def _lines(context: RunPageContext) -> None:
    run = context.run
    with ui.row().classes("mlw-run-line"):
        if run.name:
            ui.label(run.id).classes("mlw-mono")
        ui.label(context.facts.command).classes("mlw-mono mlw-said")
    with ui.row().classes("mlw-run-line mlw-faint"):
        ui.label(f"on {plain(run.spec.compute.name, 80)}")
        ui.label("·").props("aria-hidden=true")
        Timestamp(run.started or run.spec.created)
        if run.started is not None:
            ui.label("·").props("aria-hidden=true")
            _duration(context)
        if run.spec.parent:
            ui.label("·").props("aria-hidden=true")
            ui.link(f"part of {plain(run.spec.parent, 80)}", f"/runs/{quote(run.spec.parent, safe='')}")
        for tag in run.tags[:20]:
            ui.label(plain(tag, 60)).classes("mlw-run-word")._props["title"] = plain(tag, 6000)
    if run.noted.note:
        lines = [plain(line, 500) for line in run.noted.note.splitlines()]
        ui.label("\n".join(lines[:30])).classes("mlw-said mlw-run-remark")


def _duration(context: RunPageContext) -> None:
    run = context.run
    if run.duration is not None:
        ui.label(f"took {duration(run.duration)}")
        return
    label = ui.label("")

    def update() -> None:
        label.set_text(f"running for {duration(time.time() - (context.run.started or time.time()))}")

    update()
    if not run.status.final:
        ui.timer(1.0, update, immediate=False)


def _buttons(context: RunPageContext) -> None:
    run, backend = context.run, context.backend
    if not run.status.final and not context.facts.is_untracked:
        _button("Cancel", "stop", _refresh_after(context, lambda: run_dialogs.cancel(backend, run.id)))
    if not context.facts.is_untracked and not run.spec.inside:
        _button("Rerun", "replay", _refresh_after(context, lambda: run_dialogs.rerun(backend, run.id)))
    _button("Compare", "compare_arrows", lambda: ui.navigate.to(f"/compare?runs={quote(run.id, safe='')}"))
    if run.spec.snapshot:
        _button("Restore", "settings_backup_restore", lambda: actions.restore(context))
    with ui.button("More", icon="more_horiz").props("flat dense no-caps"), ui.menu().props("auto-close"):
        _menu(context)


def _menu(context: RunPageContext) -> None:
    run, backend = context.run, context.backend
    archived = run.noted.archived
    items: list[tuple[str, str, Callable[[], Awaitable[object]]]] = [
        ("Tag…", "sell", _refresh_after(context, lambda: run_dialogs.tag(backend, [run.id]))),
        ("Rename…", "edit", _refresh_after(context, lambda: run_dialogs.rename(backend, run.id))),
        ("Note…", "sticky_note_2", _refresh_after(context, lambda: run_dialogs.note(backend, run.id))),
        ("Download outputs…", "download", lambda: actions.download(context)),
        ("Diagnostics…", "medical_information", lambda: actions.diagnostics(context)),
        (
            "Unarchive" if archived else "Archive",
            "unarchive" if archived else "archive",
            _refresh_after(context, lambda: run_dialogs.archive(backend, [run.id], undo=archived)),
        ),
        ("Delete…", "delete", lambda: _delete(context)),
    ]
    for title, icon, action in items:
        with ui.item(on_click=action).classes("mlw-run-menu-item").props("dense"):
            ui.icon(icon).props("aria-hidden=true")
            ui.label(title)


async def _delete(context: RunPageContext) -> None:
    if await run_dialogs.remove(context.backend, [context.run.id]):
        ui.navigate.to(f"{context.scope.address}/runs" if context.scope else "/runs")


def _refresh_after(context: RunPageContext, action: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[object]]:
    """Refresh the page after an action that changed something."""

    async def run_action() -> None:
        if await action():
            await context.refresh()

    return run_action


def _button(title: str, icon: str, action: Callable[[], object]) -> None:
    ui.button(title, icon=icon, on_click=action).props("flat dense no-caps")
