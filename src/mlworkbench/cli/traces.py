"""``mlw history traces``: list the MLflow traces of a run, or print one as a tree of spans."""

from __future__ import annotations

import click

from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report import mlflow_report
from ..runfiles.mlflow_traces import MAX_TRACES, Span, Trace, find_trace, read_spans, read_traces
from ..sanitize import plain
from . import render, text_output
from .completion_types import complete_run
from .options import project_option, result_options
from .recorded_sections import TRACE_TITLES, trace_row
from .run_lookup import get_current_run

_MAX_VALUE = 200  # characters of an input or output in the tree


@click.command(epilog="Example: mlw history traces demo-swift tr-7cae3e")
@click.argument("run", required=False, shell_complete=complete_run)
@click.argument("trace", required=False)
@project_option
@result_options
def traces(run: str | None, trace: str | None, folder: str | None, output: str, query: str | None) -> None:
    """List the MLflow traces of a run, or show one.

    TRACE is the ID of a trace, or its beginning. Prints its spans as a tree, with shortened inputs and outputs. With -o
    json, they are complete. RUN defaults to the newest run.
    """
    history = History(user_paths())
    selected = get_current_run(history, run, folder)
    run_folder = history.paths.root.run(selected.spec.folder)
    found = read_traces(run_folder, mlflow_report.mlflow_run_of(history, selected)[0])
    if trace is not None:
        one = find_trace(found, trace)
        _show_trace(one, read_spans(run_folder, one), output, query)
    elif output != "table" or query is not None:
        render.emit([mlflow_report.trace_record(item) for item in found], output=output, query=query)
    else:
        _list_traces(selected, found)


def _list_traces(run: Run, found: list[Trace]) -> None:
    if not found:
        render.message(f"run {run.id} has recorded no traces")
        return
    text_output.write_lines(text_output.format_table(TRACE_TITLES, [trace_row(trace) for trace in found], {4, 5}))
    if len(found) >= MAX_TRACES:
        render.message(f"note: only the newest {MAX_TRACES} traces are listed")
    render.message(f"hint: show one with: mlw history traces {run.id} {plain(found[0].id, 12).rstrip('…')}")


def _show_trace(trace: Trace, spans: list[Span], output: str, query: str | None) -> None:
    if output != "table" or query is not None:
        details = [mlflow_report.span_record(span) for span in spans]
        render.emit({**mlflow_report.trace_record(trace), "spans": details}, output=output, query=query)
        return
    title = f"{plain(trace.name, 100)}  {plain(trace.status, 20)}"
    facts = [mlflow_report.span_duration(trace.duration), f"{trace.tokens} tokens" if trace.tokens else ""]
    lines = [text_output.bold(plain(trace.id, 100)), ", ".join(filter(None, (title, *facts))), ""]
    for span in spans:
        lines += _span_lines(span)
    if not spans:
        lines.append("The spans of this trace were not recorded.")
    text_output.write_lines(lines)


def _span_lines(span: Span) -> list[str]:
    indent = "  " * span.depth
    kind = "" if span.type in ("", "UNKNOWN") else f"  {plain(span.type, 30)}"
    status = "" if span.status in ("", "OK", "UNSET") else f"  {plain(span.status, 20)}"
    tokens = f"  {span.tokens} tokens" if span.tokens is not None else ""
    duration = mlflow_report.span_duration(span.duration)
    head = f"{indent}{text_output.bold(plain(span.name, 100))}{kind}{status}  {duration}{tokens}"
    values = [("error", span.message), ("in", span.inputs), ("out", span.outputs)]
    return [head, *(f"{indent}  {name:<5} {plain(text, _MAX_VALUE)}" for name, text in values if text)]
