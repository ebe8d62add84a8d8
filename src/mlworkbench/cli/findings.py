"""What was found about a machine: a table, then the remedies; for programs all of it."""

from __future__ import annotations

from dataclasses import asdict

from ..targets.check import Finding
from . import render

_COLUMNS = ("what", "state", "found")


def show_findings(findings: list[Finding], output: str, query: str | None) -> None:
    tidy = output == "table" and query is None
    rows = [{key: value for key, value in asdict(one).items() if key != "more" or value} for one in findings]
    render.emit(rows, output=output, query=query, columns=_COLUMNS if tidy else None)
    for one in findings if tidy else ():
        if one.hint:
            render.message(f"hint: {one.what}: {one.hint}")
        if one.more:
            render.message(f"more: {one.what}: mlw explain {one.more}")
