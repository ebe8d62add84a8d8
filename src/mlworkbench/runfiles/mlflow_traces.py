"""Read the traces that a script recorded with MLflow: a list, and the spans of one trace.

MLflow 3 stores spans in its database, earlier versions in a file ``traces.json`` among the artifacts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import HistoryError, UnknownName, UsageError
from ..remote.shared.layout import RunFolder
from ..remote.shared.untrusted_json import parse_json
from .mlflow_sqlite import MlflowDatabase, Row, integer_of, number_of, open_database, text_of
from .output_file import open_output

MAX_TRACES = 500
MAX_SPANS = 1000
_MAX_DEPTH = 50
_MAX_SPAN_FILE = 32 << 20  # bytes
_MAX_NAME = 500  # characters
_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NAME_TAG = "mlflow.traceName"
_SOURCE_RUN, _TOKENS = "mlflow.sourceRun", "mlflow.trace.tokenUsage"
_PREVIEWS = {"request_preview": "mlflow.traceInputs", "response_preview": "mlflow.traceOutputs"}
_TRACE_COLUMNS = (
    *("request_id", "experiment_id", "timestamp_ms", "execution_time_ms", "status"),
    *("request_preview", "response_preview", "trace_name", "total_tokens"),
)
_REQUIRED = {"request_id", "timestamp_ms", "execution_time_ms", "status"}


@dataclass(frozen=True)
class Trace:
    """A trace without its spans. Unknown values are None or empty."""

    id: str
    name: str
    status: str  # OK, ERROR, or IN_PROGRESS
    started: float | None  # seconds since 1970
    duration: float | None  # seconds
    tokens: int | None
    request: str  # the beginning of the inputs and outputs, as JSON
    response: str
    run: str | None  # the MLflow run that was active
    experiment: str


@dataclass(frozen=True)
class Span:
    """A step of a trace. ``depth`` is its level in the tree: 0 for the root."""

    id: str
    parent: str | None
    name: str
    type: str
    status: str
    message: str  # of a failure
    started: float | None  # seconds since 1970
    duration: float | None  # seconds
    inputs: str  # JSON
    outputs: str  # JSON
    tokens: int | None
    depth: int = 0


def read_traces(folder: RunFolder, mlflow_run: str | None = None) -> list[Trace]:
    """Return the traces of a run, newest first, or only those of one MLflow run in it."""
    with open_database(folder) as database:
        if database is None:
            return []
        columns = database.columns("trace_info")
        if columns and not columns >= _REQUIRED:
            raise HistoryError("MLflow's database has an unknown format: this version of mlw cannot read its traces")
        rows = database.select("trace_info", _TRACE_COLUMNS, "ORDER BY timestamp_ms DESC LIMIT ?", (MAX_TRACES,))
        ids = [str(row["request_id"]) for row in rows]
        details: dict[str, dict[str, str]] = defaultdict(dict)
        for table, names in (
            ("trace_tags", (_NAME_TAG,)),
            ("trace_request_metadata", (_SOURCE_RUN, _TOKENS, *_PREVIEWS.values())),
        ):
            for row in _select_details(database, table, names, ids):
                details[str(row["request_id"])][str(row["key"])] = text_of(row["value"])
    traces = [_trace(row, details[str(row["request_id"])]) for row in rows]
    return [trace for trace in traces if mlflow_run is None or trace.run == mlflow_run]


def _select_details(database: MlflowDatabase, table: str, names: Sequence[str], ids: Sequence[str]) -> Iterable[Row]:
    marks = f"({', '.join('?' * len(names))})", f"({', '.join('?' * len(ids))})"
    rest = f"WHERE key IN {marks[0]} AND request_id IN {marks[1]} LIMIT ?"
    return database.select(table, ("request_id", "key", "value"), rest, (*names, *ids, MAX_TRACES * len(names)))


def _trace(row: Row, details: Mapping[str, str]) -> Trace:
    started, took = number_of(row["timestamp_ms"]), number_of(row["execution_time_ms"])
    previews = [text_of(row[column]) or details.get(name, "") for column, name in _PREVIEWS.items()]
    return Trace(
        id=text_of(row["request_id"])[:_MAX_NAME],
        name=(text_of(row["trace_name"]) or details.get(_NAME_TAG, ""))[:_MAX_NAME],
        status=text_of(row["status"])[:_MAX_NAME],
        started=None if started is None else started / 1000,
        duration=None if took is None else took / 1000,
        tokens=integer_of(row["total_tokens"]) or _total_tokens(details.get(_TOKENS)),
        request=previews[0],
        response=previews[1],
        run=details.get(_SOURCE_RUN) or None,
        experiment=text_of(row["experiment_id"])[:_MAX_NAME],
    )


def _total_tokens(text: Any) -> int | None:
    usage = _decode(text)
    return integer_of(usage.get("total_tokens")) if isinstance(usage, dict) else None


def find_trace(traces: Sequence[Trace], prefix: str) -> Trace:
    """Return the trace with this ID or unique prefix of it."""
    matches = [trace for trace in traces if trace.id.startswith((prefix, f"tr-{prefix}"))]
    exact = [trace for trace in matches if trace.id == prefix]
    if not matches:
        raise UnknownName("trace", prefix, [trace.id for trace in traces])
    if len(exact or matches) > 1:
        raise UsageError(f"{len(matches)} traces begin with {prefix!r}", "type more characters of the ID")
    return (exact or matches)[0]


# -- spans ---------------------------------------------------------------------------------------------


def read_spans(folder: RunFolder, trace: Trace) -> list[Span]:
    """Return the spans of a trace in the order of a tree: each span is followed by its children."""
    with open_database(folder) as database:
        spans = [] if database is None else list(_stored_spans(database, trace.id))
    return _as_tree(spans or list(_spans_in_file(folder, trace)))


def _stored_spans(database: MlflowDatabase, trace_id: str) -> Iterator[Span]:
    rest = "WHERE trace_id = ? ORDER BY start_time_unix_nano LIMIT ?"
    times = ("start_time_unix_nano", "end_time_unix_nano")
    columns = ("span_id", "parent_span_id", "name", "type", "status", *times, "content")
    for row in database.select("spans", columns, rest, (trace_id, MAX_SPANS)):
        content = _decode(row["content"])
        facts = content if isinstance(content, dict) else {}
        yield _span(
            facts,
            id=text_of(row["span_id"]),
            parent=text_of(row["parent_span_id"]),
            name=text_of(row["name"]),
            type=text_of(row["type"]),
            status=text_of(row["status"]),
            times=(number_of(row[times[0]]), number_of(row[times[1]])),
        )


def _spans_in_file(folder: RunFolder, trace: Trace) -> Iterator[Span]:
    if not (_SAFE_ID.fullmatch(trace.id) and _SAFE_ID.fullmatch(trace.experiment)):
        return
    path = f"mlflow/{trace.experiment}/traces/{trace.id}/artifacts/traces.json"
    try:
        with open(open_output(folder, path), "rb") as file:
            data = file.read(_MAX_SPAN_FILE + 1)
    except UnknownName:
        return
    if len(data) > _MAX_SPAN_FILE:
        raise HistoryError(f"{path} is too large to display")
    try:
        entries = parse_json(data)["spans"]
        yield from (_span_in_file(entry) for entry in entries[:MAX_SPANS] if isinstance(entry, dict))
    except (ValueError, KeyError, TypeError):
        raise HistoryError(f"{path} has an unknown format") from None


def _span_in_file(entry: dict[str, Any]) -> Span:
    """Read a span of MLflow 2 or, with other names, of the first versions of MLflow 3."""
    context, status = _dict(entry.get("context")), _dict(entry.get("status"))
    start = number_of(entry.get("start_time", entry.get("start_time_unix_nano")))
    end = number_of(entry.get("end_time", entry.get("end_time_unix_nano")))
    return _span(
        {"status": {"message": entry.get("status_message")}, **entry},
        id=text_of(entry.get("span_id", context.get("span_id"))),
        parent=text_of(entry.get("parent_id", entry.get("parent_span_id"))),
        name=text_of(entry.get("name")),
        type="",
        status=text_of(entry.get("status_code", status.get("code"))).replace("STATUS_CODE_", ""),
        times=(start, end),
    )


def _span(
    content: dict[str, Any],
    *,
    id: str,
    parent: str,
    name: str,
    type: str,
    status: str,
    times: tuple[float | None, float | None],
) -> Span:
    attributes = _dict(content.get("attributes"))
    start, end = times
    return Span(
        id=id[:_MAX_NAME],
        parent=parent[:_MAX_NAME] or None,
        name=name[:_MAX_NAME],
        type=(type or text_of(_decode(attributes.get("mlflow.spanType"))))[:_MAX_NAME],
        status=status[:_MAX_NAME],
        message=text_of(_dict(content.get("status")).get("message")),
        started=None if start is None else start / 1e9,
        duration=None if start is None or end is None else max(0.0, (end - start) / 1e9),
        inputs=text_of(attributes.get("mlflow.spanInputs")),
        outputs=text_of(attributes.get("mlflow.spanOutputs")),
        tokens=_total_tokens(attributes.get("mlflow.chat.tokenUsage")),
    )


def _as_tree(spans: Sequence[Span]) -> list[Span]:
    """Order spans by their parents and set their depths. Spans of a cycle, which is invalid, come last."""
    ids = {span.id for span in spans}
    children: dict[str | None, list[Span]] = defaultdict(list)
    for span in spans:
        is_root = span.parent not in ids or span.parent == span.id
        children[None if is_root else span.parent].append(span)
    ordered: list[Span] = []
    placed: set[int] = set()
    for first in (*sorted(children[None], key=_start), *spans):
        pending = [(first, 0)]
        while pending:
            span, depth = pending.pop()
            if id(span) in placed:
                continue
            placed.add(id(span))
            ordered.append(replace(span, depth=min(depth, _MAX_DEPTH)))
            below = sorted(children.get(span.id, ()), key=_start, reverse=True)
            pending += [(child, depth + 1) for child in below if id(child) not in placed]
    return ordered


def _start(span: Span) -> float:
    return span.started or 0.0


def _decode(text: Any) -> Any:
    """Return the value of an attribute, which is JSON; None if it is not valid."""
    try:
        return parse_json(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
