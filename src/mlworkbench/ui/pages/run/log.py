"""The log of a run, and what preparing it said."""

from __future__ import annotations

from nicegui import ui

from ....report.plain import plain
from ...parts.empty import empty
from ...parts.logview import LogView
from .context import Context


async def show(context: Context) -> None:
    facts = context.facts
    if facts.outside:
        words = "The script was started without mlw; its output went to the terminal that started it."
        empty("subject", "No log for this run", words, "mlw submit SCRIPT")
        return
    if context.run.spec.inside:
        ui.label(f"This run is nested in run {plain(context.run.spec.folder, 100)} and shares its log.").classes(
            "mlw-faint"
        )
    which = "build" if context.asked.get("which") == "build" and facts.build_log else "run"
    choice = ui.toggle({"run": "Run", "build": "Preparation"}, value=which) if facts.build_log else None
    box = ui.element("div").classes("mlw-run-tab")
    if choice is not None:
        choice.props('dense no-caps unelevated aria-label="Log"').classes("mlw-run-choice")
        choice.on_value_change(lambda event: _turn(context, box, str(event.value)))
    line = context.asked.get("line", "")
    with box:
        LogView(context.run.id, which, -1 if line == "end" else int(line) if line.isdigit() and len(line) < 12 else 0)


def _turn(context: Context, box: ui.element, which: str) -> None:
    box.clear()
    with box:
        LogView(context.run.id, which)
    context.keep(which=which, line="")
