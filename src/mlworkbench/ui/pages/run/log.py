"""Log tab: logs of the run and its preparation."""

from __future__ import annotations

from nicegui import ui

from ....sanitize import plain
from ...components.empty_state import empty_state
from ...components.log_view import LogView
from .page_context import RunPageContext


async def show(context: RunPageContext) -> None:
    facts = context.facts
    if facts.is_untracked:
        text = "The script was started without mlw; its output went to the terminal that started it."
        empty_state("subject", "No log for this run", text, "mlw submit SCRIPT")
        return
    if context.run.spec.inside:
        ui.label(f"This run is nested in run {plain(context.run.spec.folder, 100)} and shares its log.").classes(
            "mlw-faint"
        )
    which = "build" if context.query.get("which") == "build" and facts.build_log else "run"
    choice = ui.toggle({"run": "Run", "build": "Preparation"}, value=which) if facts.build_log else None
    box = ui.element("div").classes("mlw-run-tab")
    if choice is not None:
        choice.props('dense no-caps unelevated aria-label="Log"').classes("mlw-run-choice")
        choice.on_value_change(lambda event: _select_log(context, box, str(event.value)))
    line = context.query.get("line", "")
    with box:
        LogView(context.run.id, which, -1 if line == "end" else int(line) if line.isdigit() and len(line) < 12 else 0)


def _select_log(context: RunPageContext, box: ui.element, which: str) -> None:
    box.clear()
    with box:
        LogView(context.run.id, which)
    context.update_query(which=which, line="")
