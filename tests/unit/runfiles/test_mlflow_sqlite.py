"""Traces, registered models, and datasets that a script recorded with MLflow. The files are untrusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from mlworkbench.errors import HistoryError, UnknownName, UsageError
from mlworkbench.remote.shared.layout import MLFLOW_DATABASE, RunFolder
from mlworkbench.runfiles.mlflow_models import read_datasets, read_models, read_versions
from mlworkbench.runfiles.mlflow_traces import MAX_TRACES, find_trace, read_spans, read_traces
from mlworkbench.runfiles.output_manifest import ManifestWriter, Output

# The tables of MLflow 3.17 and 2.22, without the columns that are not read.
NEW = """
CREATE TABLE trace_info (request_id TEXT PRIMARY KEY, experiment_id INT, timestamp_ms BIGINT, execution_time_ms BIGINT,
    status TEXT, request_preview TEXT, response_preview TEXT, trace_name TEXT, total_tokens BIGINT);
CREATE TABLE spans (trace_id TEXT, span_id TEXT, parent_span_id TEXT, name TEXT, type TEXT, status TEXT,
    start_time_unix_nano BIGINT, end_time_unix_nano BIGINT,
    duration_ns BIGINT GENERATED ALWAYS AS (end_time_unix_nano - start_time_unix_nano) STORED, content TEXT);
"""
OLD = """
CREATE TABLE trace_info (request_id TEXT PRIMARY KEY, experiment_id INT, timestamp_ms BIGINT, execution_time_ms BIGINT,
    status TEXT);
"""
BOTH = """
CREATE TABLE trace_tags (key TEXT, value TEXT, request_id TEXT);
CREATE TABLE trace_request_metadata (key TEXT, value TEXT, request_id TEXT);
CREATE TABLE model_versions (name TEXT, version INT, source TEXT, run_id TEXT, status TEXT, description TEXT,
    storage_location TEXT);
CREATE TABLE registered_model_aliases (alias TEXT, version INT, name TEXT);
"""
RUN, OTHER = "a" * 32, "b" * 32


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(str(tmp_path / "demo-swift-otter-7k2q"))
    Path(folder.metrics).mkdir(parents=True)
    Path(folder.outputs).mkdir(parents=True)
    return folder


def database(folder: RunFolder, schema: str) -> apsw.Connection:
    path = Path(folder.outputs, MLFLOW_DATABASE)
    path.parent.mkdir(exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute(schema + BOTH)
    return connection


def insert(connection: apsw.Connection, table: str, *values: Any) -> None:
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)


def insert_span(connection: apsw.Connection, name: str, parent: str | None, start: int, **attributes: Any) -> None:
    texts = {f"mlflow.{key}": json.dumps(value) for key, value in attributes.items()}
    content = json.dumps({"attributes": texts, "status": {"code": "STATUS_CODE_OK", "message": ""}})
    columns = "trace_id, span_id, parent_span_id, name, type, status, start_time_unix_nano, end_time_unix_nano, content"
    values = ("tr-1", name, parent, name, "TOOL", "OK", start, start + 500_000, content)
    connection.execute(f"INSERT INTO spans ({columns}) VALUES ({', '.join('?' * len(values))})", values)


# -- traces --------------------------------------------------------------------------------------------


def test_traces_of_mlflow_3(folder):
    connection = database(folder, NEW)
    insert(connection, "trace_info", "tr-1", 0, 1000_500, 20, "OK", '{"q": 1}', '"a"', "answer", 17)
    insert(connection, "trace_info", "tr-2", 0, 2000_000, None, "IN_PROGRESS", None, None, None, None)
    insert(connection, "trace_tags", "mlflow.traceName", "late", "tr-2")
    insert(connection, "trace_request_metadata", "mlflow.sourceRun", RUN, "tr-1")
    insert(connection, "trace_request_metadata", "mlflow.trace.tokenUsage", '{"total_tokens": 5}', "tr-2")
    newest, first = read_traces(folder)
    assert (newest.name, newest.status, newest.duration, newest.tokens) == ("late", "IN_PROGRESS", None, 5)
    assert (first.name, first.started, first.duration, first.tokens) == ("answer", 1000.5, 0.02, 17)
    assert (first.request, first.response, first.run) == ('{"q": 1}', '"a"', RUN)
    assert read_traces(folder, RUN) == [first] and read_traces(folder, OTHER) == []


def test_spans_are_in_the_order_of_a_tree(folder):
    connection = database(folder, NEW)
    insert(connection, "trace_info", "tr-1", 0, 1000, 20, "OK", None, None, "answer", None)
    insert_span(connection, "last", "root", 30)
    insert_span(connection, "leaf", "first", 25, spanOutputs=[1])
    insert_span(connection, "first", "root", 20, spanInputs={"x": 1})
    insert_span(connection, "root", None, 10)
    insert_span(connection, "orphan", "unknown", 40)
    spans = read_spans(folder, read_traces(folder)[0])
    assert [(span.name, span.depth) for span in spans] == [
        *(("root", 0), ("first", 1), ("leaf", 2), ("last", 1)),
        ("orphan", 0),
    ]
    assert (spans[1].inputs, spans[2].outputs, spans[1].duration) == ('{"x": 1}', "[1]", 0.0005)


def test_spans_in_a_cycle_are_listed_once(folder):
    connection = database(folder, NEW)
    insert(connection, "trace_info", "tr-1", 0, 1000, 20, "OK", None, None, "answer", None)
    insert_span(connection, "a", "b", 1)
    insert_span(connection, "b", "a", 2)
    insert_span(connection, "self", "self", 3)
    spans = read_spans(folder, read_traces(folder)[0])
    assert sorted(span.name for span in spans) == ["a", "b", "self"]


def test_spans_of_mlflow_2_are_in_a_file(folder):
    connection = database(folder, OLD)
    insert(connection, "trace_info", "1f", 3, 1000, 20, "ERROR")
    insert(connection, "trace_request_metadata", "mlflow.traceInputs", '{"q": "why"}', "1f")
    file = Path(folder.outputs, "mlflow/3/traces/1f/artifacts/traces.json")
    file.parent.mkdir(parents=True)
    attributes = {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": '{"q": "why"}'}
    root = {"name": "ask", "context": {"span_id": "1"}, "parent_id": None, "start_time": 10**18, "status_code": "OK"}
    failed = {**root, "name": "chat", "context": {"span_id": "2"}, "parent_id": "1", "end_time": 10**18 + 10**9}
    failed.update(status_code="ERROR", status_message="ValueError: no", attributes=attributes)
    file.write_text(json.dumps({"spans": [failed, root]}))
    (trace,) = read_traces(folder)
    assert (trace.request, trace.status) == ('{"q": "why"}', "ERROR")
    ask, chat = read_spans(folder, trace)
    assert (ask.name, ask.duration) == ("ask", None)
    assert (chat.depth, chat.type, chat.status, chat.message) == (1, "CHAT_MODEL", "ERROR", "ValueError: no")
    assert (chat.duration, chat.inputs) == (1.0, '{"q": "why"}')
    file.write_text('{"spans": 7}')
    with pytest.raises(HistoryError, match="unknown format"):
        read_spans(folder, trace)


def test_trace_is_found_by_the_beginning_of_its_id(folder):
    connection = database(folder, OLD)
    for trace_id in ("tr-12", "tr-13", "tr-1"):
        insert(connection, "trace_info", trace_id, 0, 1, 1, "OK")
    traces = read_traces(folder)
    assert find_trace(traces, "tr-12").id == find_trace(traces, "12").id == "tr-12"
    assert find_trace(traces, "tr-1").id == "tr-1"
    with pytest.raises(UsageError, match="3 traces begin with 'tr'"):
        find_trace(traces, "tr")
    with pytest.raises(UnknownName, match="tr-12"):
        find_trace(traces, "x")


def test_number_of_traces_is_limited(folder):
    connection = database(folder, OLD)
    with connection:
        for number in range(MAX_TRACES + 5):
            insert(connection, "trace_info", f"tr-{number}", 0, number, 1, "OK")
    traces = read_traces(folder)
    assert len(traces) == MAX_TRACES and traces[0].id == f"tr-{MAX_TRACES + 4}"


# -- untrusted files -----------------------------------------------------------------------------------


def test_no_database(folder):
    assert read_traces(folder) == [] and read_versions(folder, []) == []


def test_database_of_an_earlier_version_of_mlw(folder):
    Path(folder.work, ".mlflow").mkdir()
    connection = apsw.Connection(str(Path(folder.work, ".mlflow", "mlflow.db")))
    connection.execute(OLD + BOTH)
    insert(connection, "trace_info", "tr-1", 0, 1, 1, "OK")
    assert len(read_traces(folder)) == 1


def test_unknown_format_is_one_line(folder):
    database(folder, "CREATE TABLE trace_info (id TEXT, what TEXT);")
    with pytest.raises(HistoryError, match="unknown format"):
        read_traces(folder)


def test_database_without_traces(folder):
    database(folder, "")
    assert read_traces(folder) == []


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(4000)])
def test_damaged_database(folder, content):
    path = Path(folder.outputs, MLFLOW_DATABASE)
    path.parent.mkdir()
    path.write_bytes(content)
    if content:
        with pytest.raises(HistoryError, match="cannot be read"):
            read_traces(folder)
    else:
        assert read_traces(folder) == []


def test_view_is_not_read(folder):
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    columns = ("request_id", "timestamp_ms", "execution_time_ms", "status")
    view = ", ".join(f"x AS {name}" for name in columns)
    database(folder, f"CREATE VIEW trace_info AS SELECT {view} FROM ({endless});")
    assert read_traces(folder) == []


def test_slow_query_is_interrupted(folder, monkeypatch):
    monkeypatch.setattr("mlworkbench.runfiles.mlflow_sqlite._MAX_SECONDS", 0.0)
    connection = database(folder, OLD)
    with connection:
        for number in range(20_000):
            insert(connection, "trace_info", str(number), 0, number, 1, "OK")
    with pytest.raises(HistoryError, match="too slow"):
        read_traces(folder)


def test_link_is_not_followed(folder, tmp_path):
    Path(folder.outputs, "mlflow").mkdir()
    Path(folder.outputs, MLFLOW_DATABASE).symlink_to(tmp_path / "other.db")
    with pytest.raises(HistoryError, match="link"):
        read_traces(folder)


def test_database_that_is_still_on_the_target(folder):
    with ManifestWriter(folder.manifest) as writer:
        writer.add(Output(MLFLOW_DATABASE, 5, "0" * 64, "file"))
    with pytest.raises(HistoryError, match="not on this machine") as caught:
        read_traces(folder)
    assert caught.value.hint == "download the outputs with 'mlw history download -r demo-swift-otter-7k2q'"


def test_values_of_any_type(folder):
    connection = database(folder, NEW.replace("TEXT", "").replace("BIGINT", ""))
    insert(connection, "trace_info", 5, "x", "y", 1e300, b"\0", 7, b"a", 3, "many")
    connection.execute("INSERT INTO spans (trace_id, span_id, parent_span_id, content) VALUES ('5', NULL, 5, '[[')")
    (trace,) = read_traces(folder)
    assert (trace.id, trace.started, trace.duration, trace.tokens) == ("5", None, None, None)
    (span,) = read_spans(folder, trace)
    assert (span.name, span.inputs) == ("", "")


# -- models and datasets -------------------------------------------------------------------------------


def write_records(folder: RunFolder, *records: tuple[str, dict[str, Any]]) -> None:
    lines = [json.dumps({"k": kind, "d": data, "t": 1.0}) for kind, data in records]
    Path(folder.metrics, "1-a").write_text("not a record\n" + "\n".join(lines) + "\n")


def test_datasets(folder):
    iris = {"name": "iris", "digest": "d1", "source": '{"url": "https://x"}', "profile": '{"num_rows": 3}'}
    write_records(folder, ("dataset", {**iris, "context": "training"}), ("dataset", {**iris, "run": OTHER}))
    (dataset,) = read_datasets(folder)
    assert (dataset.name, dataset.context, dataset.source) == ("iris", "training", {"url": "https://x"})
    assert (dataset.profile, dataset.schema) == ({"num_rows": 3}, None)
    assert [dataset.context for dataset in read_datasets(folder, OTHER)] == [""]


def test_models_with_their_metrics_and_versions(folder):
    model = {"id": "m-1", "name": "net", "path": "models/net", "type": "pytorch"}
    point = {"model": "m-1", "name": "acc", "value": 0.5, "step": 1}
    better = {**point, "value": 0.75}
    write_records(folder, ("model", model), ("model_metric", point), ("model_metric", {**better, "dataset": "iris"}))
    files = {"models/net": {"as": "model", "name": "net"}, "old": {"as": "model"}, "a.txt": {"as": "text"}}
    models = read_models(folder, files)
    assert [(model.name, model.path) for model in models] == [("net", "models/net"), ("old", "old")]
    assert models[0].metrics == {"acc": 0.5, "acc (iris)": 0.75}
    connection = database(folder, NEW)
    insert(connection, "model_versions", "good", 1, "models:/m-1", RUN, "READY", None, None)
    insert(connection, "model_versions", "good", 2, "file:///x/work/outputs/old", OTHER, "READY", "text", None)
    insert(connection, "model_versions", "other", 1, "s3://bucket/x", RUN, "READY", None, None)
    for alias in ("b", "a"):
        insert(connection, "registered_model_aliases", alias, 1, "good")
    first, second, other = read_versions(folder, models)
    assert (first.version, first.path, first.aliases, first.model_id) == ("1", "models/net", ("a", "b"), "m-1")
    assert (second.path, second.description, other.path) == ("old", "text", "")
    assert [version.name for version in read_versions(folder, models, OTHER)] == ["good"]
