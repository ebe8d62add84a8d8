"""Stores that a script created with MLflow itself, as written by MLflow 3.17, and damaged ones."""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlworkbench.history.ingest import ingest_bytes
from mlworkbench.history.nested_runs import child_id, children_of
from mlworkbench.history.rows import ReadPosition
from mlworkbench.history.series.series_store import Series
from mlworkbench.model import Run, Status
from mlworkbench.remote.kept_files import find_unkept
from mlworkbench.remote.script_files import ScriptFiles
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.shared.snapshot_manifest import VERSION, write_record
from mlworkbench.remote.tracking.file_search import MLFLOW, TrackingFiles
from mlworkbench.remote.tracking.mlflow_database import MlflowDatabase
from mlworkbench.remote.tracking.mlflow_import import MlflowImport
from mlworkbench.remote.tracking.mlflow_run import UnreadableStore

from ...history.test_run_state import SPEC

STARTED = 1795039590.0  # before the runs of the recorded stores
RECORDED = Path(__file__).parents[2] / "recorded"
TABLES = """
CREATE TABLE alembic_version (version_num VARCHAR(32));
CREATE TABLE runs (run_uuid, name, status, start_time BIGINT, end_time BIGINT, lifecycle_stage, artifact_uri);
CREATE TABLE params (key, value, run_uuid);
CREATE TABLE tags (key, value, run_uuid);
CREATE TABLE metrics (key, value FLOAT, timestamp BIGINT, run_uuid, step BIGINT, is_nan BOOLEAN);
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(str(tmp_path / "run"))
    os.makedirs(run.work)
    os.makedirs(run.metrics)
    return run


def record(run: RunFolder, started: float = STARTED, keep: tuple[str, ...] = ()) -> ScriptFiles:
    found, files = TrackingFiles(run.work), ScriptFiles()
    found.search(now=True)
    MlflowImport(run, started, keep, files).record(found.found[MLFLOW], time.monotonic() + 60)
    assert sorted(set(os.listdir(run.path)) - {"work", "metrics", "placed.json"}) == [], "temporary files are removed"
    return files


def history(run: RunFolder) -> Run:
    path = Path(run.metrics) / "mlflow"
    return ingest_bytes(Run(SPEC), ReadPosition(), {"metrics/mlflow": path.read_bytes()})[0]


def run_of(run: RunFolder, child: Run) -> str:
    """Return MLflow's ID of a child run."""
    return next(name for name in history(run).children if child_id(SPEC.id, name) == child.id)


def database(run: RunFolder, name: str = "mlflow.db", tables: str = TABLES) -> sqlite3.Connection:
    connection = sqlite3.connect(os.path.join(run.work, name))
    connection.executescript(tables)
    return connection


def add_run(connection: sqlite3.Connection, name: str, start: float = STARTED, stage: str = "active") -> None:
    times = int(start * 1000) + 5, int(start * 1000) + 9
    connection.execute("INSERT INTO runs VALUES (?, ?, 'FINISHED', ?, ?, ?, '')", (name * 32, name, *times, stage))
    connection.execute("INSERT INTO metrics VALUES ('loss', 0.5, ?, ?, 1, 0)", (times[0], name * 32))
    connection.execute("INSERT INTO params VALUES ('lr', ?, ?)", (name, name * 32))
    connection.commit()


@pytest.mark.parametrize("store", ["mlflow.db", "mlruns"])
def test_recorded_stores_of_mlflow(run, store):
    """Both stores have a run with a nested one. The first represents the run of the script itself."""
    shutil.unpack_archive(RECORDED / "mlflow-3.17-stores.zip", run.work)
    work = Path(run.work)
    if store == "mlflow.db":
        for folder in set(work.glob("mlruns/*")) - {work / "mlruns" / "1"}:
            shutil.rmtree(folder)  # only the artifacts of the database remain
    else:
        (work / "mlflow.db").unlink()
        shutil.rmtree(work / "mlruns" / "1")
    files = record(run)
    recorded = history(run)
    assert recorded.params == {"lr": "0.1", "a/b": "x\ny"}
    assert recorded.told_tags["team"] == "vision" and recorded.name == "outer"
    assert recorded.metrics["loss"] == 1 / 3 and recorded.spans["loss"].length == 3 and recorded.spans["loss"].step == 2
    assert math.isnan(recorded.metrics["acc/val"]) and recorded.metrics["i"] == math.inf
    (child,) = children_of(recorded)
    assert (child.metrics, child.status, child.spec.parent) == ({"loss": 9.0}, Status.COMPLETED, SPEC.id)
    assert child.started and child.ended and child.started > STARTED
    with Series(run) as series:
        series.catch_up()
        assert list(series.points("loss").values) == [1.0, 0.5, 1 / 3]
        assert list(series.points("loss", run_of(run, child)).values) == [9.0]
    (artifact,) = files.unread.lines()
    assert artifact.endswith("/artifacts/a/t.txt: an MLflow artifact outside of outputs/")
    write_record(run.placed, {"version": VERSION, "digest": "d", "files": {}})
    assert find_unkept(run, files.recorded) == ["mlruns/"], "because of the artifact"
    (work / artifact.partition(":")[0]).unlink()
    assert find_unkept(run, files.recorded) == []


def test_several_runs_are_children(run):
    with database(run) as connection:
        add_run(connection, "a")
        add_run(connection, "b", STARTED + 1, "deleted")
    record(run)
    recorded = history(run)
    first, second = children_of(recorded)
    assert (first.name, second.name) == ("a", "b") and second.detail == "deleted"
    assert first.metrics == recorded.metrics == second.metrics == {"loss": 0.5}
    assert (first.params, recorded.params, second.params) == ({"lr": "a"}, {"lr": "a"}, {"lr": "b"})


def test_a_run_of_the_in_run_library_comes_first(run):
    os.mkdir(os.path.join(run.work, ".mlflow"))
    Path(run.work, ".mlflow", "first").write_text("x")
    with database(run) as connection:
        add_run(connection, "a")
    record(run)
    recorded = history(run)
    assert recorded.metrics == {} and [child.metrics for child in children_of(recorded)] == [{"loss": 0.5}]


def test_only_runs_of_this_script_count(run):
    with database(run) as connection:
        add_run(connection, "a", STARTED - 100)
    assert record(run).recorded == set() and os.listdir(run.metrics) == []
    with sqlite3.connect(os.path.join(run.work, "mlflow.db")) as connection:
        add_run(connection, "b")
    record(run)
    assert history(run).params == {"lr": "b"} and not history(run).children
    os.utime(os.path.join(run.work, "mlflow.db"), (1, 1))
    assert record(run).recorded == set(), "unchanged since the start"


def test_the_journal_of_a_killed_script_is_used(run, tmp_path):
    with database(run) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        add_run(connection, "a")
        shutil.copytree(run.work, tmp_path / "copy")
    connection.close()
    shutil.rmtree(run.work)
    shutil.move(tmp_path / "copy", run.work)
    assert "mlflow.db-wal" in os.listdir(run.work)
    record(run)
    assert history(run).metrics == {"loss": 0.5}
    assert "mlflow.db-wal" in os.listdir(run.work), "the script's files stay as they are"


def test_a_second_supervisor_does_not_record_again(run):
    with database(run) as connection:
        add_run(connection, "a")
    record(run)
    before = (Path(run.metrics) / "mlflow").read_bytes()
    assert record(run).recorded == {"mlflow.db"}
    assert (Path(run.metrics) / "mlflow").read_bytes() == before


BLOBS = """
BEGIN;
CREATE TABLE inputs (input_uuid, source_type, source_id, destination_type, destination_id);
CREATE TABLE input_tags (input_uuid, name, value);
CREATE TABLE datasets (
  dataset_uuid, name, digest, dataset_source_type, dataset_source, dataset_schema, dataset_profile
);
CREATE TABLE logged_models (
  model_id, name, artifact_location, creation_timestamp_ms, status, lifecycle_stage, model_type, source_run_id
);
CREATE TABLE logged_model_params (model_id, param_key, param_value);
CREATE TABLE logged_model_tags (model_id, tag_key, tag_value);
CREATE TABLE logged_model_metrics (
  model_id, metric_name, metric_timestamp_ms, metric_step, metric_value, run_id, dataset_name, dataset_digest
);
INSERT INTO inputs VALUES ('i', 'DATASET', 'd', 'RUN', '%(run)s');
INSERT INTO input_tags VALUES ('i', 'mlflow.data.context', x'61');
INSERT INTO datasets VALUES ('d', x'61', x'62', x'63', x'64', x'65', x'66');
INSERT INTO logged_models VALUES ('m', x'61', x'62', x'7f', x'01', 'READY', x'63', '%(run)s');
INSERT INTO logged_model_params VALUES ('m', x'61', x'62');
INSERT INTO logged_model_tags VALUES ('m', x'61', x'62');
INSERT INTO logged_model_metrics VALUES ('m', x'61', x'62', x'63', 0.5, '%(run)s', x'64', x'65');
CREATE TABLE other (a);
PRAGMA writable_schema = 1;
UPDATE sqlite_master SET name = CAST(name AS BLOB) WHERE name = 'other';
COMMIT;
"""


def test_binary_data_where_mlflow_has_texts(run):
    """SQLite stores any type in any column."""
    with database(run, tables=TABLES + BLOBS % {"run": "a" * 32}) as connection:
        add_run(connection, "a")
    connection.close()
    with database(run, "other.db") as connection:
        add_run(connection, "b")
    record(run)
    recorded = history(run)
    assert [child.metrics for child in children_of(recorded)] == [{"loss": 0.5}] * 2
    lines = [json.loads(line) for line in (Path(run.metrics) / "mlflow").read_text().splitlines()]
    data = {line["k"]: line["d"] for line in lines if line.get("k") in ("dataset", "model", "model_metric")}
    assert (data["dataset"]["name"], data["dataset"]["context"]) == ("a", "a")
    assert (data["model"]["id"], data["model_metric"]["name"], data["model_metric"]["time"]) == ("m", "a", 0)


LOOP = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, x, x, x, x, x, x FROM n"
UNREADABLE = {
    "schema": (TABLES.replace("is_nan BOOLEAN", "other"), "its schema is unknown"),
    "status": (TABLES + "INSERT INTO runs VALUES ('a', '', 'NEW', 1795039599000, 0, '', '');", "its schema is unknown"),
    "virtual": (
        TABLES.replace("CREATE TABLE tags (", "CREATE VIRTUAL TABLE tags USING fts5("),
        "its schema is unknown",
    ),
    "generated": (
        TABLES.replace("(key, value, run_uuid);", "(key, run_uuid, value AS (hex(zeroblob(100000000))));", 1)
        + "INSERT INTO params VALUES (1, 'a');",
        "its schema is unknown",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_databases_are_named(run, case):
    tables, reason = UNREADABLE[case]
    # In another process, because SQLite's memory limit applies to this one from the first import on.
    command = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])"
    subprocess.run([sys.executable, "-c", command, os.path.join(run.work, "mlflow.db"), tables], check=True)
    files = record(run)
    assert files.unread.lines() == [f"mlflow.db: MLflow runs are not recorded: {reason}"]
    assert files.recorded == set() and os.listdir(run.metrics) == []


def test_damaged_and_other_databases(run, monkeypatch):
    Path(run.work, "mlflow.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert record(run).unread.lines() == ["mlflow.db: MLflow runs are not recorded: file is not a database"]
    os.unlink(os.path.join(run.work, "mlflow.db"))
    Path(run.work, "x.db").write_bytes(b"text")
    database(run, "y.sqlite", f"CREATE VIEW runs AS {LOOP}; CREATE TABLE alembic_version (a);").close()
    assert record(run).unread.lines() == []
    with open(os.path.join(run.work, "z.db"), "wb") as file:
        file.write(b"SQLite format 3\0")
        file.truncate(1 << 40)
    assert record(run).unread.lines() == ["z.db: MLflow runs are not recorded: it is larger than 256 MiB"]


def folder_run(run: RunFolder, name: str = "a", status: int = 3) -> Path:
    folder = Path(run.work) / "mlruns" / "0" / (name * 32)
    for part in ("metrics", "params", "tags"):
        (folder / part).mkdir(parents=True)
    (folder / "meta.yaml").write_text(
        f"run_id: {folder.name}\nlifecycle_stage: active\nstart_time: {int(STARTED * 1000)}\nstatus: {status}\n"
    )
    return folder


def test_hostile_folders(run, tmp_path):
    folder = folder_run(run)
    (tmp_path / "secret").write_text("secret")
    (folder / "params" / "secret").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "params" / "fifo")
    (folder / "params" / "long").write_text("x" * 100_000)
    (folder / "metrics" / "loss").write_bytes(b"1 nonsense 2\n\xff\n" + b"9" * 5000 + b"\n1795039599000 0.5 7\n1 2\n")
    folder_run(run, "b", status=9)
    files = record(run)
    recorded = history(run)
    assert recorded.params == {"long": "x" * 6000}
    assert recorded.metrics["loss"] == 0.5 and recorded.spans["loss"].length == 2
    assert files.unread.lines() == [
        f"mlruns/0/{'b' * 32}/meta.yaml: MLflow runs are not recorded: its format is unknown"
    ]


def test_a_slow_store_is_recorded_in_part(run):
    folder = folder_run(run)
    (folder / "metrics" / "loss").write_text("1795039599000 0.5 7\n" * 10)
    found, files = TrackingFiles(run.work), ScriptFiles()
    found.search(now=True)
    MlflowImport(run, STARTED, (), files).record(found.found[MLFLOW], 0.0)
    assert "MLflow store is only partly recorded" in files.unread.lines()[0]
    assert json.loads((Path(run.metrics) / "mlflow").read_text().splitlines()[-1])["v"] == 0.5


MORE_DATA = "traces and similar data in it are not recorded; to collect the file, add it to Keep"


def add_trace(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute("CREATE TABLE trace_info (request_id, timestamp_ms BIGINT)")
    connection.execute("INSERT INTO trace_info VALUES ('tr-1', ?)", (int(seconds * 1000),))
    connection.commit()


def test_a_database_with_traces_is_kept(run):
    """The first one is copied to where the in-run library has its database, the others are named."""
    for name in ("a.db", "b.db"):
        with database(run, name) as connection:
            add_run(connection, name[0])
            add_trace(connection, STARTED)
    files = record(run)
    assert sqlite3.connect(os.path.join(run.outputs, "mlflow", "mlflow.db")).execute(
        "SELECT request_id FROM trace_info"
    ).fetchall() == [("tr-1",)]
    assert files.unread.lines() == [f"b.db: {MORE_DATA}"]
    assert files.recorded == {"a.db"} and len(history(run).children) == 2


def test_a_second_supervisor_names_the_same_databases_of_the_project(run):
    write_record(run.placed, {"version": VERSION, "digest": "d", "files": {"mlflow.db": {}}})
    with database(run) as connection:
        add_run(connection, "a")
        add_trace(connection, STARTED + 5)
    first, second = record(run), record(run)
    assert first.unread.lines() == second.unread.lines() != [] and second.recorded == set()


def test_data_that_cannot_be_copied_does_not_hide_the_recorded_runs(run, monkeypatch):
    with database(run) as connection:
        add_run(connection, "a")
        add_trace(connection, STARTED)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowDatabase, "copy_to", refuse)
        files = record(run)
    assert files.unread.lines() == ["mlflow.db: MLflow store is only partly recorded: disk is full"]
    assert files.recorded == set() and history(run).metrics == {"loss": 0.5}
    os.unlink(os.path.join(run.metrics, "mlflow"))
    Path(run.outputs).write_text("the script replaced the folder")
    files = record(run)
    assert files.unread.lines() == [f"mlflow.db: {MORE_DATA}"]
    assert files.recorded == set() and history(run).metrics == {"loss": 0.5}


def refuse(*_: object) -> None:
    raise UnreadableStore("disk is full")


@pytest.mark.parametrize(("seconds", "is_named"), [(STARTED + 5, True), (STARTED - 5000, False)])
def test_a_database_of_the_project_is_not_copied(run, seconds, is_named):
    """It would show the traces of earlier runs as those of this run."""
    write_record(run.placed, {"version": VERSION, "digest": "d", "files": {"mlflow.db": {}}})
    with database(run) as connection:
        add_run(connection, "a")
        add_trace(connection, seconds)
    files = record(run)
    assert not os.path.exists(run.outputs) and len(history(run).params) == 1
    assert bool(files.unread.lines()) is is_named, files.unread.lines()


def test_the_database_of_the_in_run_library_is_not_read_again(run):
    os.makedirs(os.path.join(run.outputs, "mlflow"))
    for name in ("outputs/mlflow/mlflow.db", "outputs/mlflow.db"):
        add_run(database(run, name), name[-1])
    found = TrackingFiles(run.work)
    found.search(now=True)
    assert found.found[MLFLOW] == ["outputs/mlflow.db"]
