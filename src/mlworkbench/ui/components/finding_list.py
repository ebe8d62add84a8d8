"""Findings about a machine, with remedies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nicegui import ui

from ...sanitize import plain

_STATES = {
    "ok": ("check_circle", "good", "OK"),
    "warning": ("warning", "warn", "Warning"),
    "error": ("error", "bad", "Error"),
}


def findings_table(findings: Iterable[Mapping[str, Any]]) -> None:
    """Show a row for each finding, with the remedy below it."""
    with ui.element("div").classes("mlw-findings"):
        for finding in findings:
            _finding(finding)


def _finding(finding: Mapping[str, Any]) -> None:
    icon, kind, label = _STATES.get(str(finding.get("state")), ("help", "idle", "Unknown"))
    with ui.row().classes(f"mlw-status mlw-{kind}"):
        ui.icon(icon).props("aria-hidden=true")
        ui.label(label)
    ui.label(plain(str(finding.get("what")), 100)).classes("mlw-findings-what")
    with ui.column().classes("mlw-findings-words"):
        ui.label(plain(str(finding.get("found")), 1000)).classes("mlw-said")
        if finding.get("hint"):
            with ui.row().classes("mlw-remedy"):
                ui.icon("build").props("aria-hidden=true")
                ui.label(plain(str(finding["hint"]), 1000)).classes("mlw-said")


def findings_summary(findings: Iterable[Mapping[str, Any]]) -> None:
    """Show findings in a compact form for cards. Only findings that are not OK get an icon."""
    with ui.element("dl").classes("mlw-facts"):
        for finding in findings:
            with ui.element("dt"):
                ui.label(plain(str(finding.get("what")), 100))
            with ui.element("dd"):
                icon, kind, label = _STATES.get(str(finding.get("state")), ("help", "idle", "Unknown"))
                if finding.get("state") != "ok":
                    with ui.row().classes(f"mlw-status mlw-{kind}"):
                        ui.icon(icon).props("aria-hidden=true")
                        ui.label(f"{label}: {plain(str(finding.get('found')), 300)}")
                else:
                    ui.label(plain(str(finding.get("found")), 300)).classes("mlw-said")
                if finding.get("hint"):
                    ui.label(plain(str(finding["hint"]), 500)).classes("mlw-said mlw-faint")
