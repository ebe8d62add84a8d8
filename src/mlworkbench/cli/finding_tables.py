"""Findings about a machine, as a table with hints or as complete JSON records."""

from __future__ import annotations

from dataclasses import asdict

from ..errors import details_of
from ..targets.machine_check import Finding
from . import render

_HEADINGS = {"what": "check", "state": "state", "found": "result"}


def show_findings(findings: list[Finding], output: str, query: str | None) -> None:
    is_table = output == "table" and query is None
    rows = [{key: value for key, value in asdict(finding).items() if key != "more" or value} for finding in findings]
    if is_table:
        rows = [{heading: row[key] for key, heading in _HEADINGS.items()} for row in rows]
    render.emit(rows, output=output, query=query)
    for finding in findings if is_table else ():
        if finding.hint:
            render.message(f"hint: {finding.what}: {finding.hint}")
        if finding.more:
            render.message(f"hint: {finding.what}: {details_of(finding.more)}")
