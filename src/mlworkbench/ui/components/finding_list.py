"""What was found on a machine: what is well, what is not, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nicegui import ui

from ...report.plain import plain

_SIGNS = {
    "ok": ("check_circle", "good", "OK"),
    "warning": ("warning", "warn", "Warning"),
    "error": ("error", "bad", "Error"),
}


def findings_table(found: Iterable[Mapping[str, Any]]) -> None:
    """A row each; the remedy stands below what it remedies."""
    with ui.element("div").classes("mlw-findings"):
        for one in found:
            _finding(one)


def _finding(one: Mapping[str, Any]) -> None:
    icon, kind, word = _SIGNS.get(str(one.get("state")), ("help", "idle", "Unknown"))
    with ui.row().classes(f"mlw-status mlw-{kind}"):
        ui.icon(icon).props("aria-hidden=true")
        ui.label(word)
    ui.label(plain(str(one.get("what")), 100)).classes("mlw-findings-what")
    with ui.column().classes("mlw-findings-words"):
        ui.label(plain(str(one.get("found")), 1000)).classes("mlw-said")
        if one.get("hint"):
            with ui.row().classes("mlw-remedy"):
                ui.icon("build").props("aria-hidden=true")
                ui.label(plain(str(one["hint"]), 1000)).classes("mlw-said")


def facts_list(found: Iterable[Mapping[str, Any]]) -> None:
    """The same, in few words: a card has little room. A sign stands only where something is not well."""
    with ui.element("dl").classes("mlw-facts"):
        for one in found:
            with ui.element("dt"):
                ui.label(plain(str(one.get("what")), 100))
            with ui.element("dd"):
                icon, kind, word = _SIGNS.get(str(one.get("state")), ("help", "idle", "Unknown"))
                if one.get("state") != "ok":
                    with ui.row().classes(f"mlw-status mlw-{kind}"):
                        ui.icon(icon).props("aria-hidden=true")
                        ui.label(f"{word}: {plain(str(one.get('found')), 300)}")
                else:
                    ui.label(plain(str(one.get("found")), 300)).classes("mlw-said")
                if one.get("hint"):
                    ui.label(plain(str(one["hint"]), 500)).classes("mlw-said mlw-faint")
