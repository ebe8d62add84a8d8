"""Send the traces of a run with their spans (MLflow 3.2 and later). They keep their IDs."""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, BinaryIO

from ...errors import HistoryError, UnknownName
from ...model import JsonDict
from ...remote.shared.layout import RunFolder
from ...remote.shared.untrusted_json import parse_json
from ...runfiles.mlflow_sqlite import MlflowDatabase, Row, integer_of, open_database, text_of
from ...runfiles.output_file import open_output
from .remote_run import RemoteRun, get_object
from .rest_client import RequestRejected, Server

_API = "3.0"
_MAX_TRACES = 10_000
_MAX_SPANS = 10_000
_MAX_SPAN_FILE = 32 << 20  # bytes
_ID = re.compile(r"[A-Za-z0-9_-]{1,50}")
_EXPERIMENT = re.compile(r"[0-9]{1,20}")
_SOURCE_RUN, _MODEL, _NAME = "mlflow.sourceRun", "mlflow.modelId", "mlflow.traceName"
_COLUMNS = (
    *("request_id", "experiment_id", "timestamp_ms", "execution_time_ms", "status"),
    *("request_preview", "response_preview", "trace_name"),
)
_LOCATION_TAGS = ("mlflow.artifactLocation", "mlflow.trace.spansLocation")
_STATES = ("OK", "ERROR", "IN_PROGRESS")
_MAX_TIME = 1 << 47  # milliseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Trace:
    """A trace as the script recorded it."""

    id: str
    experiment: str
    started: int  # milliseconds since 1970
    duration: int  # milliseconds
    state: str
    request: str  # preview
    response: str  # preview
    tags: Mapping[str, str]
    metadata: Mapping[str, str]

    @property
    def run(self) -> str:
        """The MLflow run of the script that was active."""
        return self.metadata.get(_SOURCE_RUN, "")


def read_traces(folder: RunFolder) -> list[Trace]:
    with open_database(folder) as database:
        if database is None:
            return []
        rows = database.select("trace_info", _COLUMNS, "ORDER BY timestamp_ms LIMIT ?", (_MAX_TRACES,))
        if not rows:
            return []
        tags = _read_pairs(database, "trace_tags")
        metadata = _read_pairs(database, "trace_request_metadata")
    traces = [_trace(row, tags[text_of(row["request_id"])], metadata[text_of(row["request_id"])]) for row in rows]
    return [trace for trace in traces if _ID.fullmatch(trace.id) and _EXPERIMENT.fullmatch(trace.experiment)]


def _read_pairs(database: MlflowDatabase, table: str) -> dict[str, dict[str, str]]:
    pairs: dict[str, dict[str, str]] = defaultdict(dict)
    for row in database.select(table, ("request_id", "key", "value"), "LIMIT ?", (50 * _MAX_TRACES,)):
        pairs[text_of(row["request_id"])][text_of(row["key"])] = text_of(row["value"])
    return pairs


def _trace(row: Row, tags: dict[str, str], metadata: dict[str, str]) -> Trace:
    name, state = text_of(row["trace_name"]), text_of(row["status"])
    return Trace(
        text_of(row["request_id"]),
        text_of(row["experiment_id"]),
        _milliseconds(row["timestamp_ms"]),
        _milliseconds(row["execution_time_ms"]),
        state if state in _STATES else "STATE_UNSPECIFIED",
        text_of(row["request_preview"]),
        text_of(row["response_preview"]),
        {**({_NAME: name} if name else {}), **tags},
        metadata,
    )


def _milliseconds(value: Any) -> int:
    return min(max(integer_of(value) or 0, 0), _MAX_TIME)


def read_spans(folder: RunFolder, trace: Trace) -> bytes:
    """Return the spans as a JSON file in MLflow's format. Raise HistoryError if they cannot be read."""
    with open_database(folder) as database:
        rest = "WHERE trace_id = ? ORDER BY start_time_unix_nano LIMIT ?"
        rows = [] if database is None else database.select("spans", ("content",), rest, (trace.id, _MAX_SPANS))
    if rows:
        try:
            return json.dumps({"spans": [_span(row["content"]) for row in rows]}).encode()
        except (ValueError, TypeError):
            raise HistoryError(f"a span of trace {trace.id} is too long or damaged") from None
    # Before MLflow 3.6, spans were in a file.
    path = f"mlflow/{trace.experiment}/traces/{trace.id}/artifacts/traces.json"
    try:
        with open(open_output(folder, path), "rb") as file:
            data = file.read(_MAX_SPAN_FILE + 1)
    except UnknownName:
        raise HistoryError(f"trace {trace.id} has no spans") from None
    if len(data) > _MAX_SPAN_FILE:
        raise HistoryError(f"the spans of trace {trace.id} are too large")
    return data


def _span(content: Any) -> JsonDict:
    span = parse_json(text_of(content))
    if not isinstance(span, dict):
        raise TypeError
    return span


class TraceUploader:
    """An uploader for the traces of one run. ``model_ids`` are the logged models: original → new ID."""

    def __init__(
        self,
        server: Server,
        remote: RemoteRun,
        model_ids: Mapping[str, str],
        send_file: Callable[[str, str, BinaryIO], None],
    ) -> None:
        self._server = server
        self._remote = remote
        self._model_ids = model_ids
        self._send_file = send_file

    def send(self, folder: RunFolder, traces: list[Trace]) -> Iterator[str]:
        """Send the traces. Yield a reason for each one that could not be sent."""
        for trace in traces:
            try:
                yield from self._send_trace(folder, trace)
            except (HistoryError, RequestRejected) as error:
                yield error.message

    def _send_trace(self, folder: RunFolder, trace: Trace) -> Iterator[str]:
        spans = read_spans(folder, trace)
        info = self._find(trace) or self._create(trace)
        experiment = get_object(get_object(info, "trace_location"), "mlflow_experiment").get("experiment_id")
        tags = info.get("tags")
        root = text_of(tags.get(_LOCATION_TAGS[0])) if isinstance(tags, dict) else ""
        if str(experiment) != self._remote.experiment_id:
            yield f"trace {trace.id} is already in another experiment of the server"
        elif not self._server.accepts_uploads(root):
            yield f"the server does not accept the spans of trace {trace.id}"
        else:
            self._send_file(root, "traces.json", io.BytesIO(spans))

    def _find(self, trace: Trace) -> JsonDict | None:
        try:
            return _info(self._server.get(f"traces/{trace.id}", api=_API))
        except RequestRejected as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"):
                return None
            raise

    def _create(self, trace: Trace) -> JsonDict:
        metadata = {**trace.metadata, **({_SOURCE_RUN: self._remote.id} if trace.run else {})}
        if _MODEL in metadata:
            metadata[_MODEL] = self._model_ids.get(metadata[_MODEL], metadata[_MODEL])
        experiment = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self._remote.experiment_id}}
        info = {
            "trace_id": trace.id,
            "trace_location": experiment,
            "request_preview": trace.request,
            "response_preview": trace.response,
            "request_time": (_EPOCH + timedelta(milliseconds=trace.started)).isoformat().replace("+00:00", "Z"),
            "execution_duration": f"{trace.duration // 1000}.{trace.duration % 1000:03}s",
            "state": trace.state,
            "trace_metadata": metadata,
            "tags": {name: value for name, value in trace.tags.items() if name not in _LOCATION_TAGS},
        }
        return _info(self._server.post("traces", {"trace": {"trace_info": info}}, retry=False, api=_API))


def _info(response: JsonDict) -> JsonDict:
    return get_object(get_object(response, "trace"), "trace_info")
