"""GPU verdict of a run, with its cause, remedy, and evidence."""

from __future__ import annotations

from nicegui import ui

from ...components.property_list import heading, property_list, table
from ...queries.gpu_verdict import Card, Verdict

_VERDICTS = {
    "yes": ("check_circle", "good", "GPU used"),
    "partly": ("error", "warn", "GPU partly used"),
    "no": ("cancel", "bad", "GPU not used"),
    "unknown": ("help", "idle", "GPU usage unknown"),
    "": ("memory", "busy", "GPUs of this run"),
}


def show(verdict: Verdict) -> None:
    icon, kind, title = _VERDICTS.get(verdict.used, _VERDICTS["unknown"])
    if verdict.not_requested:
        icon, kind, title = "info", "idle", "No GPU requested or used"
    with ui.element("section").classes("mlw-card"):
        heading("GPU")
        with ui.row().classes(f"mlw-status mlw-{kind} mlw-run-verdict"):
            ui.icon(icon).props("aria-hidden=true")
            ui.label(title)
        if verdict.line:
            ui.label(verdict.line).classes("mlw-said")
        for text, style in ((verdict.warning, "mlw-warn"), (verdict.cause, "")):
            if text:
                ui.label(text).classes(f"mlw-said {style}")
        if verdict.remedy:
            ui.label(f"How to fix: {verdict.remedy}").classes("mlw-said mlw-run-remedy")
        _allocation(verdict)
        if verdict.cards or verdict.evidence:
            with ui.expansion("Evidence", value=verdict.needs_attention).classes("mlw-run-more").props("dense"):
                if verdict.cards:
                    _cards(verdict.cards)
                property_list(verdict.evidence)


def _allocation(verdict: Verdict) -> None:
    rows = [("Requested", verdict.asked)] if verdict.asked else []
    rows += [("Exclusive" if verdict.held else "Visible", line) for line in verdict.got]
    if rows:
        property_list(rows)


def _cards(cards: list[Card]) -> None:
    """Show a table with a column for each GPU and a row for each value."""
    labels = list(dict.fromkeys(label for card in cards for label, _ in card.figures))
    figures = [dict(card.figures) for card in cards]
    rows = [["Run processes", *("\n".join(card.processes) or "none" for card in cards)]]
    if any(card.lost for card in cards):
        rows.append(["GPU lost", *(card.lost or "" for card in cards)])
    rows += [[label, *(values.get(label, "") for values in figures)] for label in labels]
    table(["", *(card.name for card in cards)], rows, "GPUs")
