"""Runs as results: whole for programs, tidied for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model import Run
from . import render
from .records import for_people, record


def show_run(run: Run, output: str, query: str | None) -> None:
    facts = record(run)
    tidy = output == "table" and query is None
    render.emit(for_people(facts) if tidy else facts, output=output, query=query)


def show_runs(runs: Iterable[Run], output: str, query: str | None, columns: Sequence[str]) -> None:
    records = [record(run) for run in runs]
    if output == "table" and query is None:
        records = [for_people(one) for one in records]
        if not records:
            render.message("no runs")
    render.emit(records, output=output, query=query, columns=columns)
