"""``history export --mlflow`` to a real server, and what MLflow's own client returns for each field."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import subprocess
import urllib.request
from contextlib import suppress
from dataclasses import replace

import pytest

from mlworkbench.history.store import History
from mlworkbench.paths import UserPaths
from tests.conftest import User, end_processes
from tests.e2e.mlflow_entities import COMPARE, ENTITIES
from tests.e2e.mlflow_environments import BEFORE, NEWEST, mlflow_python
from tests.e2e.test_environment import set_compute_key
from tests.machines.network import wait_until

TIMEOUT = 300  # seconds; MLflow starts slowly on a busy machine
pytestmark = pytest.mark.timeout(2 * TIMEOUT)

TRAIN = """
import mlflow, mlworkbench, pandas

for step in range(2500):
    mlworkbench.log("loss", 1 / (step + 1), step=step)
mlworkbench.log("stepless", 1.5)
mlworkbench.log("stepless", 2.5)
mlworkbench.log("good", True)
mlworkbench.log("words", "fine")
for step, value in enumerate(("nan", "inf", "-inf")):
    mlworkbench.log("odd", float(value), step=step)
mlworkbench.log("a*b", 1)
mlworkbench.log("a?b", 2)
mlworkbench.log_params({"long": "x" * 9000, "depth": 3, "layers": [1, 2], "empty": ""})
mlworkbench.set_tag("team", "vision")
with mlflow.start_run(description="first words"):
    mlflow.log_param("solver", "lbfgs")
    mlflow.log_metric("accuracy", 0.5, step=3)
    data = mlflow.data.from_pandas(pandas.DataFrame({"a": [1, 2]}), name="small")
    mlflow.log_input(data, context="training")
    mlflow.log_text("hello", "notes/one.txt")
    with mlflow.start_run(run_name="inner", nested=True):
        mlflow.log_param("fold", 1)
        for step in range(3):
            mlflow.log_metric("accuracy", step / 10, step=step)
        mlflow.log_text("mine", "own.txt")
open("outputs/odd #1 100%.txt", "w").write("odd")
print("the log has", open("secret.txt").read())
"""

# Dumps everything on the server with MLflow's own client for each line of input, because the import takes seconds.
DUMP = """
import json, sys
from mlflow import MlflowClient

client = MlflowClient(sys.argv[1])

def files(run, folder=None):
    for one in client.list_artifacts(run, folder):
        if one.is_dir:
            yield from files(run, one.path)
        else:
            yield one.path

def look():
    found = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id], run_view_type=3):
            series = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
            found.setdefault(run.data.tags.get("mlw.run_id"), []).append({
                "id": run.info.run_id, "experiment": experiment.name, "name": run.info.run_name,
                "status": run.info.status, "start": run.info.start_time, "end": run.info.end_time,
                "params": run.data.params, "tags": run.data.tags, "last": run.data.metrics,
                "series": {name: [(one.step, one.timestamp, repr(one.value)) for one in every]
                           for name, every in series.items()},
                "datasets": [(one.dataset.name, one.dataset.source_type, [tag.value for tag in one.tags])
                             for one in run.inputs.dataset_inputs],
                "files": {path: open(client.download_artifacts(run.info.run_id, path), "rb").read().decode()
                          for path in files(run.info.run_id)},
            })
    return found

for _ in sys.stdin:
    print(json.dumps(look()), flush=True)
"""


@pytest.fixture(scope="module", params=[NEWEST, BEFORE], ids=["newest", "2.x"])
def server(request, tmp_path_factory):
    """A real MLflow server with a database: once with the newest MLflow, and once with the last 2.x."""
    place = tmp_path_factory.mktemp("server")
    python = mlflow_python(request.param)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    arguments = [
        "--backend-store-uri",
        f"sqlite:///{place}/store.db",
        "--artifacts-destination",
        str(place / "artifacts"),
    ]
    with open(place / "log", "wb") as log:
        started = subprocess.Popen(
            [python, "-m", "mlflow", "server", *arguments, "--port", str(port), "--workers", "1"],
            stdout=log,
            stderr=log,
            cwd=place,
            # Start no job processes, because each of them imports all of MLflow.
            env={
                "PATH": f"{python.parent}:/usr/bin:/bin",
                "HOME": str(place),
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            },
            start_new_session=True,
        )
    try:
        wait_until(lambda: started.poll() is not None or _is_healthy(port), "MLflow", TIMEOUT)
        assert started.poll() is None, (place / "log").read_text()
        with Server(f"http://127.0.0.1:{port}", str(python), place) as running:
            yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def _is_healthy(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


class Server:
    def __init__(self, uri, python, place):
        self.uri = uri
        self.python = python
        self._place = place
        self._errors = place / "client.log"
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(place), "MLFLOW_TRACKING_URI": uri}
        with open(self._errors, "wb") as log:
            command = [python, "-W", "ignore", "-c", DUMP, uri]
            self._client = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environ, cwd=place, text=True
            )

    def python_run(self, name, text, *arguments):
        """Run a script that uses this server as its tracking server. Return what it prints."""
        script = self._place / name
        script.write_text(text)
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self._place),
            "MLFLOW_TRACKING_URI": self.uri,
            "USER": getpass.getuser(),
        }
        command = [self.python, "-W", "ignore", script, *arguments]
        done = subprocess.run(command, cwd=self._place, env=environ, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1] if done.stdout else ""

    def holds(self):
        """Return all runs on the server, grouped by mlw run ID."""
        self._client.stdin.write("\n")
        self._client.stdin.flush()
        answer = self._client.stdout.readline()
        assert answer, self._errors.read_text()
        return json.loads(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._client.kill()
        self._client.communicate()


@pytest.fixture(scope="module")
def ran(server, tmp_path_factory):
    """A user's project, and a run with a nested run."""
    user = User(tmp_path_factory.mktemp("user"))
    root = user.project("demo", train=TRAIN)
    set_compute_key(root, "local", "pythonLocation", server.python)
    (root / "secret.txt").write_text("hush-hush-1234")
    arguments = [
        "submit",
        "-c",
        "local",
        "--tag",
        "rate=0.1",
        "--tag",
        "best",
        "--secret",
        "WORD",
        "train.py",
        "--fast",
    ]
    done = user.mlw(*arguments, cwd=root, timeout=TIMEOUT, env={"WORD": "hush-hush-1234"})
    assert done.code == 0, done
    yield user, root, done.run
    end_processes(user.store)


def export(user, server, *arguments, **more):
    return user.mlw("history", "export", *arguments, "--mlflow", server.uri, cwd=user.home, timeout=TIMEOUT, **more)


def lines_of(user, run):
    files = (user.folder(run) / "metrics").glob("*")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_run_is_exported_with_every_field(server, ran):
    user, root, run = ran
    done = export(user, server, run, env={"WORD": "hush-hush-1234"})
    assert done.code == 0, done
    held = server.holds()
    (exported,) = held[run]
    info = user.info(run)
    assert exported["id"] in done.out and "/#/experiments/" in done.out
    assert (exported["experiment"], exported["name"], exported["status"]) == ("demo", run, "FINISHED")
    moments = History(UserPaths(user.store)).get(run)
    assert (exported["start"], exported["end"]) == (round(moments.started * 1000), round(moments.ended * 1000))
    long = exported["params"].pop("long")
    assert long.startswith("x" * 5900) and len(long) <= 6000
    assert exported["params"] == {"fast": "true", "depth": "3", "layers": "[1, 2]", "empty": "", "solver": "lbfgs"}
    expected = {
        "team": "vision",
        "rate": "0.1",
        "best": "",
        "mlflow.user": info["user_id"],
        "mlflow.source.name": "train.py",
        "mlflow.note.content": "first words",
        "mlflow.runName": run,
        "mlw.run_id": run,
        "mlw.target": "local",
    }
    assert expected.items() <= exported["tags"].items()
    assert "mlflow.parentRunId" not in exported["tags"]
    _check_points(exported, lines_of(user, run))
    ((data, source, contexts),) = exported["datasets"]
    assert (data, source, contexts) == ("small", "code", ["training"])
    files = exported["files"]
    assert files["notes/one.txt"] == "hello" and files["odd _1 100_.txt"] == "odd"
    assert "own.txt" not in str([name for name in files if name.startswith("mlflow/")])
    assert files["mlw/log.txt"].strip().endswith("the log has ***"), "the log, without its secret"
    whole = json.loads(files["mlw/record.json"])
    assert whole["run_id"] == run and whole["renamed"]["metrics"] == {"a*b": "a_b", "a?b": "a_b-2"}
    assert json.loads(files["mlw/values.json"])["words"][0]["value"] == "fine"
    assert "hush-hush" not in json.dumps(held)


def _check_points(exported, lines):
    """Check that each point matches the run's own files: step, millisecond, value."""
    series = exported["series"]
    written = [line for line in lines if line.get("n") == "loss"]
    expected = [[line["s"], round(line["t"] * 1000), repr(float(line["v"]))] for line in written]
    assert sorted(series["loss"]) == sorted(expected) and len(expected) == 2500
    assert [(step, value) for step, _, value in series["stepless"]] == [(0, "1.5"), (1, "2.5")]
    largest = "1.7976931348623157e+308"  # MLflow's database stores infinity like this
    assert [(step, value) for step, _, value in sorted(series["odd"])] == [(0, "nan"), (1, largest), (2, "-" + largest)]
    assert [value for _, _, value in series["good"]] == ["1.0"]
    assert (exported["last"]["a_b"], exported["last"]["a_b-2"], exported["last"]["loss"]) == (1.0, 2.0, 1 / 2500)


def test_nested_run_is_exported_as_child(server, ran):
    user, _, run = ran
    assert export(user, server, run, env={"WORD": "hush-hush-1234"}).code == 0
    held = server.holds()
    ((child, (inner,)),) = [(name, runs) for name, runs in held.items() if name.startswith(f"{run}.")]
    assert inner["tags"]["mlflow.parentRunId"] == held[run][0]["id"]
    assert (inner["name"], inner["status"], inner["params"]["fold"]) == ("inner", "FINISHED", "1")
    assert [(step, value) for step, _, value in inner["series"]["accuracy"]] == [(0, "0.0"), (1, "0.1"), (2, "0.2")]
    assert inner["files"]["own.txt"] == "mine" and "mlw/log.txt" not in inner["files"]


def test_second_export_updates_run(server, ran):
    user, _, run = ran
    assert export(user, server, run, env={"WORD": "hush-hush-1234"}).code == 0
    (before,) = server.holds()[run]
    history = History(UserPaths(user.store))
    history.annotate(
        run, lambda noted: replace(noted, name="the good one", note="read me", tags=("seen",), untagged=("best",))
    )
    history.close()
    done = export(user, server, run)
    assert done.code == 1 and "updated" in done.out, done
    assert f"the log of run {run} was not sent: its secret WORD is not set here" in done.err
    (after,) = server.holds()[run]
    assert after["id"] == before["id"]
    assert after["name"] == after["tags"]["mlflow.runName"] == "the good one"
    assert after["tags"]["mlflow.note.content"] == "read me" and after["tags"]["seen"] == ""
    assert "best" not in after["tags"] and after["tags"]["team"] == "vision"
    assert after["series"] == before["series"] and after["params"] == before["params"]
    assert {**after["files"], "mlw/record.json": ""} == {**before["files"], "mlw/record.json": ""}


def test_next_export_completes_killed_export(server, ran):
    user, _, run = ran
    arguments = [run, "--experiment", "another one"]
    killed = export(user, server, *arguments, env={"MLW_FAILPOINT": "points sent:kill:2"})
    assert killed.code == -signal.SIGKILL
    assert export(user, server, *arguments, env={"WORD": "hush-hush-1234"}).code == 0
    exported = [row for row in server.holds()[run] if row["experiment"] == "another one"]
    assert len(exported) == 1, "one run, and each point once"
    _check_points(exported[0], lines_of(user, run))
    assert exported[0]["files"]["notes/one.txt"] == "hello"


def test_failed_run_is_exported_with_cause(server, ran):
    user, root, _ = ran
    (root / "bad.py").write_text("raise ValueError('too much')\n")
    failed = user.mlw("submit", "-c", "local", "bad.py", cwd=root, timeout=TIMEOUT).run
    assert export(user, server, failed).code == 0
    (exported,) = server.holds()[failed]
    assert exported["status"] == "FAILED" and "ValueError: too much" in exported["tags"]["mlw.cause"]
    assert "too much" in exported["files"]["mlw/log.txt"]


def test_exported_entities_equal_those_of_the_script_itself(server, ran):
    """The same script, once in mlw and exported, and once with the server as its tracking server."""
    user, root, _ = ran
    (root / "entities.py").write_text(ENTITIES)
    submitted = user.mlw("submit", "-c", "local", "entities.py", "exported", cwd=root, timeout=TIMEOUT)
    assert submitted.code == 0, submitted
    done = export(user, server, submitted.run, "--experiment", "exported")
    assert done.code == 0, done
    is_3 = "not sent" not in done.err
    again = export(user, server, submitted.run, "--experiment", "exported")
    assert again.code == 0 and "updated" in again.out, again
    server.python_run("entities.py", ENTITIES, "direct")
    exported, direct = json.loads(server.python_run("compare.py", COMPARE, server.uri, "exported", "direct"))
    if not is_3:
        assert "not sent, because the server (MLflow 2.22) does not accept them: 1 trace" in done.err
    assert [name for name in exported["files"] if name != "mlw"] == direct["files"]
    assert exported["tags"].pop("mlflow.registered.exported") == "1"
    assert {**exported, "files": []} == {**direct, "files": []}
