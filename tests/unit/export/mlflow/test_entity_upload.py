"""Logged models, registered versions, and traces of a run: reading what the script recorded, and sending it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from mlworkbench.errors import HistoryError
from mlworkbench.export.mlflow.entity_upload import EntityUploader, excluded_files, read_entities
from mlworkbench.export.mlflow.model_upload import read_models
from mlworkbench.export.mlflow.registry_upload import VersionUploader
from mlworkbench.export.mlflow.remote_run import RemoteRun
from mlworkbench.export.mlflow.rest_client import Server
from mlworkbench.export.mlflow.server_limits import limits_of
from mlworkbench.export.mlflow.trace_upload import TraceUploader, read_spans, read_traces
from mlworkbench.remote.shared.layout import MLFLOW_DATABASE
from tests.unit.export.mlflow.test_rest_client import ScriptedServer
from tests.unit.export.test_export import item

TABLES = """
CREATE TABLE trace_info (request_id, experiment_id, timestamp_ms, execution_time_ms, status, request_preview,
    response_preview, trace_name);
CREATE TABLE spans (trace_id, start_time_unix_nano, content);
CREATE TABLE trace_tags (request_id, key, value);
CREATE TABLE trace_request_metadata (request_id, key, value);
CREATE TABLE registered_models (name, description);
CREATE TABLE registered_model_tags (name, key, value);
CREATE TABLE registered_model_aliases (name, version, alias);
CREATE TABLE model_versions (name, version, source, storage_location, run_id, description);
CREATE TABLE model_version_tags (name, version, key, value);
"""
MODEL, RUN, CHILD = "m-" + "1" * 32, "a" * 32, "b" * 32
REMOTE = RemoteRun("9", "4", "mlflow-artifacts:/4/9/artifacts", {}, {}, frozenset())


def model_line(**fields):
    return {
        "k": "model",
        "d": {"id": MODEL, "name": "net", "path": "models/net", "status": "READY", **fields},
        "t": 1.0,
    }


def point_line(**fields):
    point = {"model": MODEL, "name": "acc", "value": 0.5, "step": 1, "time": 1000, **fields}
    return {"k": "model_metric", "d": point, "t": 1.0}


def insert(given, table, *rows):
    path = f"{given.folder.outputs}/{MLFLOW_DATABASE}"
    connection = apsw.Connection(path)
    for row in rows:
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    connection.close()


@pytest.fixture
def given(tmp_path):
    """A run with an empty database."""
    given = item(tmp_path, files={MLFLOW_DATABASE: b""})
    connection = apsw.Connection(f"{given.folder.outputs}/{MLFLOW_DATABASE}")
    connection.execute(TABLES)
    connection.close()
    return replace(given, children=(CHILD,))


# -- reading -------------------------------------------------------------------------------------------


def test_models_of_hostile_records(tmp_path):
    lines = [
        model_line(params={"p": 1, "q": "x"}, tags={"t": None}),
        model_line(id="m-' or 1=1", name="evil"),
        model_line(id="m-" + "2" * 32, run=CHILD),
        point_line(value="NaN"),
        point_line(value="1e5"),
        point_line(value=True),
        point_line(value=[1]),
        point_line(time=-1),
        point_line(time="now"),
        point_line(step=1e30, dataset="d", digest="x"),
    ]
    (model,) = read_models(item(tmp_path, lines=lines).folder, None)
    assert (model.id, model.name, model.params, model.tags) == (MODEL, "net", {"p": "1", "q": "x"}, {"t": ""})
    assert model.points == (
        {"key": "acc", "value": "NaN", "timestamp": 1000, "step": 1},
        {"key": "acc", "value": 0.5, "timestamp": 1000, "step": 0, "dataset_name": "d", "dataset_digest": "x"},
    )


def test_entities_belong_to_the_run_or_to_a_nested_run(given):
    insert(given, "model_versions", ("net", 1, "models:/x", "", RUN, None), ("net", 2, "s", "", CHILD, "second"))
    insert(given, "registered_model_aliases", ("net", 2, "best"))
    insert(given, "model_version_tags", ("net", 2, "stage", "new"))
    insert(given, "registered_models", ("net", "about"))
    insert(given, "trace_info", ("tr-1", 0, 1, 2, "OK", "in", "out", "ask"), ("tr-2", 0, 1, 2, "odd", None, None, None))
    insert(given, "trace_request_metadata", ("tr-2", "mlflow.sourceRun", CHILD))
    entities = read_entities(given)
    assert [version.number for version in entities.versions] == ["1"] and [trace.id for trace in entities.traces] == [
        "tr-1"
    ]
    nested = read_entities(replace(given, name_in_script=CHILD))
    (version,), (trace,) = nested.versions, nested.traces
    assert (version.description, version.aliases, version.tags) == ("second", ("best",), {"stage": "new"})
    same = read_entities(replace(given, name_in_script=CHILD, is_same=True))
    assert not same, "its data is sent with the run that contains it"
    assert version.model_description == "about" and (trace.id, trace.state) == ("tr-2", "STATE_UNSPECIFIED")


def test_ids_that_are_not_mlflows_are_ignored(given):
    insert(given, "trace_info", ("../../x", 0, 1, 2, "OK", "", "", ""), ("tr-1", "../x", 1, 2, "OK", "", "", ""))
    insert(given, "trace_info", ("tr-2", 0, -5, 1 << 62, "OK", "", "", ""))
    (trace,) = read_traces(given.folder)
    assert (trace.id, trace.started) == ("tr-2", 0)


def test_spans_that_cannot_be_read(given):
    insert(given, "trace_info", ("tr-1", 0, 1, 2, "OK", "", "", ""), ("tr-2", 0, 1, 2, "OK", "", "", ""))
    insert(given, "spans", ("tr-1", 1, '{"name": "root"}'), ("tr-2", 1, "[" * 100_000))
    first, second = read_traces(given.folder)
    assert json.loads(read_spans(given.folder, first)) == {"spans": [{"name": "root"}]}
    with pytest.raises(HistoryError, match="too long or damaged"):
        read_spans(given.folder, second)


def test_damaged_database_is_a_problem_of_this_run_only(given):
    Path(given.folder.outputs, MLFLOW_DATABASE).write_bytes(b"x" * 5000)
    assert "cannot be read" in read_entities(given).problem


# -- sending -------------------------------------------------------------------------------------------


def test_old_server_is_named_in_one_line(tmp_path):
    given, warnings = item(tmp_path, lines=[model_line()]), []
    given = replace(given, run=replace(given.run, files={"models/net": {"as": "model", "name": "net"}}))
    with ScriptedServer() as there, Server(there.uri, {}) as client:
        uploader = EntityUploader(client, limits_of("2.9.2"), warnings.append)
        entities = uploader.supported(REMOTE, read_entities(given))
        assert uploader.send(REMOTE, given, entities) and excluded_files(entities) == (MLFLOW_DATABASE,)
        uploader.warn_unsupported()
        assert there.asked == []
    assert warnings == ["not sent, because the server (MLflow 2.9) does not accept them: 1 logged model"]


def test_trace_of_another_experiment_stays_there(given):
    insert(given, "trace_info", ("tr-1", 0, 1, 2, "OK", "", "", ""))
    insert(given, "spans", ("tr-1", 1, "{}"))
    location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "3"}}
    answer = json.dumps({"trace": {"trace_info": {"trace_id": "tr-1", "trace_location": location}}}).encode()
    with ScriptedServer((200, {}, answer)) as there, Server(there.uri, {}) as client:
        traces = TraceUploader(client, REMOTE, {}, lambda *_: pytest.fail("nothing is sent"))
        problems = list(traces.send(given.folder, read_traces(given.folder)))
    assert problems == ["trace tr-1 is already in another experiment of the server"]


def test_version_of_an_earlier_export_is_found(given):
    insert(
        given,
        "model_versions",
        ("net", 1, f"models:/{MODEL}", "", RUN, None),
        ("net", 2, f"models:/{MODEL}", "file:///r/work/outputs/net", RUN, None),
    )
    earlier = {"name": "net", "version": "7", "tags": [{"key": "mlw.version", "value": "1"}]}
    answers = [{"model_versions": [earlier]}, {}, {"model_version": {"version": "8"}}]
    with (
        ScriptedServer(*((200, {}, json.dumps(answer).encode()) for answer in answers)) as there,
        Server(there.uri, {}) as client,
    ):
        assert list(VersionUploader(client, given, REMOTE, {}).send(read_entities(given).versions)) == []
    assert [path.partition("?")[0].rpartition("mlflow/")[2] for _, path, *_ in there.asked] == [
        "model-versions/search",
        "registered-models/create",
        "model-versions/create",
    ]
    body = json.loads(there.asked[-1][3])
    assert body["source"] == "mlflow-artifacts:/4/9/artifacts/net"
    assert {"key": "mlw.version", "value": "2"} in body["tags"]
