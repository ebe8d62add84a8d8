"""Sections of ``mlw history show`` with what the script recorded: description, datasets, models, tables, traces."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..history.store import History
from ..model import Run
from ..report import mlflow_report, units
from ..report.mlflow_report import MlflowData
from ..report.table_report import LoggedTable, load_tables
from ..runfiles.mlflow_traces import Trace
from ..sanitize import plain
from . import text_output

MAX_ID = 12  # characters of a trace ID in tables
_MAX_ROWS = 10  # maximum entries per section
_MAX_DESCRIPTION = 20  # lines
_MAX_TAG = 60  # characters
_CELL = 60
Lines = list[str]


def annotation_lines(run: Run) -> Lines:
    """Return tags, note, and description. Long tags are shortened."""
    pairs = []
    if run.tags:
        shown = [plain(tag, _MAX_TAG) for tag in run.tags]
        pairs.append(("Tags", ", ".join(shown)))
    pairs += _text("Note", run.noted.note)
    pairs += _text("Description", mlflow_report.description_of(run))
    return text_output.format_pairs(pairs)


def _text(title: str, text: str | None) -> list[tuple[str, str]]:
    lines = (text or "").splitlines()
    shown = [plain(line, 1000) for line in lines[:_MAX_DESCRIPTION]]
    shown += [f"and {len(lines) - _MAX_DESCRIPTION} more lines"] if len(lines) > _MAX_DESCRIPTION else []
    return [(title if index == 0 else "", line) for index, line in enumerate(shown)]


def data_sections(history: History, run: Run) -> list[Lines]:
    data = mlflow_report.load_mlflow_data(history, run)
    return [_datasets(data), _models(data), _tables(history, run), _traces(run, data)]


def _datasets(data: MlflowData) -> Lines:
    rows = [
        [
            plain(dataset.name, 40),
            plain(dataset.context, 20),
            mlflow_report.source_text(dataset, _CELL),
            plain(dataset.digest, 16),
            mlflow_report.content_text(dataset),
        ]
        for dataset in data.datasets
    ]
    return _section(["Dataset", "Context", "Source", "Digest", "Content"], rows, "-o json")


def _models(data: MlflowData) -> Lines:
    rows = [
        [
            plain(model.name, 40),
            plain(model.path, _CELL),
            mlflow_report.metrics_text(model),
            ", ".join(map(mlflow_report.version_text, data.versions_of(model))),
        ]
        for model in data.models
    ]
    rows += [["", "", "", mlflow_report.version_text(version)] for version in data.other_versions]
    titles = ["Model", "Path", "Metrics", "Registered as"]
    kept = [0, *(index for index in (1, 2, 3) if any(row[index] for row in rows))]
    return _section([titles[index] for index in kept], [[row[index] for index in kept] for row in rows], "-o json")


def _tables(history: History, run: Run) -> Lines:
    tables = load_tables(history, run, _MAX_ROWS + 1)
    more = f"mlw history tables {run.id}"
    return _section(TABLE_TITLES, [table_row(table) for table in tables], more, {1})


TABLE_TITLES = ["Table", "Rows", "Columns"]


def table_row(table: LoggedTable) -> list[str]:
    columns = plain(", ".join(table.columns), _CELL)
    return [table.title, str(len(table.rows)) if table.columns else "", columns or table.problem or ""]


def _traces(run: Run, data: MlflowData) -> Lines:
    if data.problem is not None:
        hint = f"; {data.problem.hint}" if data.problem.hint else ""
        return text_output.format_pairs([("Traces", plain(f"{data.problem.message}{hint}", 500))])
    return _section(TRACE_TITLES, [trace_row(trace) for trace in data.traces], f"mlw history traces {run.id}", {4, 5})


TRACE_TITLES = ["Trace", "Name", "Status", "Started", "Duration", "Tokens", "Request"]


def trace_row(trace: Trace) -> list[str]:
    return [
        plain(trace.id, MAX_ID).rstrip("…"),
        plain(trace.name, 30),
        plain(trace.status, 20),
        "" if trace.started is None else units.age(max(0.0, time.time() - trace.started)),
        mlflow_report.span_duration(trace.duration),
        "" if trace.tokens is None else str(trace.tokens),
        plain(trace.request, 40),
    ]


def _section(titles: list[str], rows: list[list[str]], where: str, right: Iterable[int] = ()) -> Lines:
    lines = text_output.format_table(titles, rows[:_MAX_ROWS], set(right))
    more = len(rows) - _MAX_ROWS
    return [*lines, *([f"and {more} more: {where}"] if more > 0 else [])]
