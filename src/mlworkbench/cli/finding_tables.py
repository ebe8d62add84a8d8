"""What was found about a machine: a table, then the remedies; for programs all of it."""

from __future__ import annotations

from dataclasses import asdict

from ..errors import details_of
from ..targets.check import Finding
from . import render

_HEADINGS = {"what": "check", "state": "state", "found": "result"}


def show_findings(findings: list[Finding], output: str, query: str | None) -> None:
    tidy = output == "table" and query is None
    rows = [{key: value for key, value in asdict(one).items() if key != "more" or value} for one in findings]
    if tidy:
        rows = [{heading: row[key] for key, heading in _HEADINGS.items()} for row in rows]
    render.emit(rows, output=output, query=query)
    for one in findings if tidy else ():
        if one.hint:
            render.message(f"hint: {one.what}: {one.hint}")
        if one.more:
            render.message(f"hint: {one.what}: {details_of(one.more)}")
