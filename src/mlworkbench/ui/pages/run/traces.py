"""Traces tab: the traces that the script recorded with MLflow, and the spans of one of them."""

from __future__ import annotations

from nicegui import ui

from ....errors import MlwError
from ....report.mlflow_report import span_duration
from ....runfiles.mlflow_traces import MAX_TRACES, Trace
from ....sanitize import plain
from ...components.empty_state import empty_state
from ...components.property_list import Cell, heading, table
from ...components.span_list import SpanList
from ...components.timestamp import Timestamp
from ...queries import mlflow_data as queries
from .page_context import RunPageContext

_PER_STEP = 50  # traces shown at a time


async def show(context: RunPageContext) -> None:
    found = await context.backend.call(queries.traces, context.run.id)
    if found.problem:
        empty_state("account_tree", "The traces cannot be shown", found.problem)
    elif not found.traces:
        text = "The functions of a script that are decorated with @mlflow.trace record traces."
        empty_state("account_tree", "No traces recorded", text)
    else:
        await _Traces(context, found.traces).build()


class _Traces:
    """List of traces, with the selected trace below."""

    def __init__(self, context: RunPageContext, traces: list[Trace]) -> None:
        self._context = context
        self._traces = traces
        self._shown = _PER_STEP

    async def build(self) -> None:
        with ui.element("section").classes("mlw-card"):
            heading("Traces")
            self._list = ui.element("div").classes("mlw-run-tab")
        self._details = ui.element("div").classes("mlw-run-tab")
        self._draw_list()
        selected = self._context.query.get("trace", "")
        if selected:
            await self._show(selected)

    def _draw_list(self) -> None:
        titles = ["Name", "Status", "Started", "Duration", "Tokens", "Request"]
        self._list.clear()
        with self._list:
            table(titles, map(self._row, self._traces[: self._shown]), "Traces")
            more = len(self._traces) - self._shown
            if more > 0:
                ui.button(f"and {more} more", on_click=self._show_more).props("flat dense no-caps")
            elif len(self._traces) >= MAX_TRACES:
                ui.label(f"Only the newest {MAX_TRACES} traces are listed.").classes("mlw-faint")

    def _show_more(self) -> None:
        self._shown += _PER_STEP
        self._draw_list()

    def _row(self, trace: Trace) -> list[Cell]:
        def button() -> None:
            name = plain(trace.name, 60) or plain(trace.id, 20)
            ui.button(name, on_click=lambda: self._show(trace.id)).props("flat dense no-caps padding='0 2px'")

        started = trace.started
        return [
            button,
            lambda: ui.label(plain(trace.status, 20)).classes("mlw-bad" if trace.status == "ERROR" else ""),
            "" if started is None else lambda: Timestamp(started, relative=False),
            span_duration(trace.duration),
            "" if trace.tokens is None else str(trace.tokens),
            plain(trace.request, 100),
        ]

    async def _show(self, trace_id: str) -> None:
        self._context.update_query(trace=trace_id)
        self._details.clear()
        try:
            trace, spans = await self._context.backend.call(queries.spans, self._context.run.id, trace_id)
        except MlwError as error:
            with self._details:
                ui.label(plain(error.message, 300)).classes("mlw-bad")
            return
        if self._details.is_deleted:
            return
        self._details.clear()
        with self._details, ui.element("section").classes("mlw-card"):
            heading(plain(trace.name, 100) or "Trace")
            ui.label(plain(trace.id, 100)).classes("mlw-mono mlw-faint")
            if spans:
                SpanList(f"Spans of {plain(trace.name, 100)}", spans)
            else:
                ui.label("The spans of this trace were not recorded.").classes("mlw-faint")
