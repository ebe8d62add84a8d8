"""Whether the run used its GPUs: the verdict, the cause, the remedy, and what they rest on."""

from __future__ import annotations

from nicegui import ui

from ...answers.gpu import Card, Verdict
from ...parts.facts import facts, heading, table

_SIGNS = {
    "yes": ("check_circle", "good", "GPU used"),
    "partly": ("error", "warn", "GPU partly used"),
    "no": ("cancel", "bad", "GPU not used"),
    "unknown": ("help", "idle", "GPU usage unknown"),
    "": ("memory", "busy", "GPUs of this run"),
}


def show(verdict: Verdict) -> None:
    icon, kind, title = _SIGNS.get(verdict.used, _SIGNS["unknown"])
    if verdict.unasked:
        icon, kind, title = "info", "idle", "No GPU requested or used"
    with ui.element("section").classes("mlw-card"):
        heading("GPU")
        with ui.row().classes(f"mlw-status mlw-{kind} mlw-run-verdict"):
            ui.icon(icon).props("aria-hidden=true")
            ui.label(title)
        if verdict.line:
            ui.label(verdict.line).classes("mlw-said")
        for words, look in ((verdict.warning, "mlw-warn"), (verdict.cause, "")):
            if words:
                ui.label(words).classes(f"mlw-said {look}")
        if verdict.remedy:
            ui.label(f"How to fix: {verdict.remedy}").classes("mlw-said mlw-run-remedy")
        _asked(verdict)
        if verdict.cards or verdict.evidence:
            with ui.expansion("Evidence", value=verdict.doubtful).classes("mlw-run-more").props("dense"):
                if verdict.cards:
                    _cards(verdict.cards)
                facts(verdict.evidence)


def _asked(verdict: Verdict) -> None:
    rows = [("Requested", verdict.asked)] if verdict.asked else []
    rows += [("Exclusive" if verdict.held else "Visible", line) for line in verdict.got]
    if rows:
        facts(rows)


def _cards(cards: list[Card]) -> None:
    """A column for each GPU, a row for each figure."""
    labels = list(dict.fromkeys(label for card in cards for label, _ in card.figures))
    told = [dict(card.figures) for card in cards]
    rows = [["Run processes", *("\n".join(card.processes) or "none" for card in cards)]]
    if any(card.lost for card in cards):
        rows.append(["GPU lost", *(card.lost or "" for card in cards)])
    rows += [[label, *(one.get(label, "") for one in told)] for label in labels]
    table(["", *(card.name for card in cards)], rows, "GPUs")
