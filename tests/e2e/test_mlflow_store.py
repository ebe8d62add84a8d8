"""The store of MLflow runs, used directly with the newest MLflow and the last 2.x: it behaves as MLflow's databases."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.mlflow_environments import BEFORE, NEWEST, mlflow_python

IN_RUN = Path(__file__).parents[2] / "src/mlworkbench/remote/inrun"

# Every check runs in one process per version, because importing MLflow is slow.
CHECKS = """
import json, os, sys, threading
import mlflow
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunStatus, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking._tracking_service.utils import _get_store

store, client, IS_3 = _get_store(), MlflowClient(), mlflow.__version__ >= "3"


def error_of(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return str(getattr(error, "error_code", type(error).__name__)) + ": " + str(error)


def new_run(**options):
    return client.create_run(client.create_experiment(os.urandom(4).hex()), **options)


def long_tag_is_not_accepted():
    run = new_run().info.run_id
    os.environ["MLFLOW_TRUNCATE_LONG_VALUES"] = "false"
    try:
        return error_of(store.set_tag, run, RunTag("notes", "x" * 10000))
    finally:
        del os.environ["MLFLOW_TRUNCATE_LONG_VALUES"]


def long_tag_is_truncated():
    run = new_run().info.run_id
    client.set_tag(run, "notes", "x" * 10000)
    return len(client.get_run(run).data.tags["notes"])


def tags_of_new_runs_are_not_validated():
    return sorted(new_run(tags={"what?": "x" * 10000, "mlflow.runName": "a"}).data.tags)


def incomplete_inputs_are_rejected():
    run, good = new_run().info.run_id, Dataset("data", "abc", "local", "here")
    tag = InputTag("context", "train")
    bad = [
        DatasetInput(Dataset(None, "abc", "local", "here"), [tag]),
        DatasetInput(Dataset("data", None, "local", "here"), [tag]),
        DatasetInput(good, [InputTag(None, "train")]),
        DatasetInput(good, [InputTag("x" * 256, "train")]),
    ]
    return [error_of(store.log_inputs, run, [item]) for item in bad] + [error_of(store.log_inputs, run, (1,))]


def deleted_runs_do_not_change():
    run = new_run().info.run_id
    client.delete_run(run)
    return [error_of(client.log_metric, run, "a", 1), error_of(client.delete_tag, run, "a")]


def deleted_experiments_get_no_runs():
    experiment = client.create_experiment("deleted")
    client.delete_experiment(experiment)
    return error_of(client.create_run, experiment)


def experiment_ids_are_numbers():
    return [error_of(store.get_experiment, "invalid"), store.get_experiment(0).name, store.get_experiment("").name]


def default_experiment_can_be_deleted():
    client.delete_experiment("0")
    stage = client.get_experiment("0").lifecycle_stage
    client.restore_experiment("0")
    return [stage, client.get_experiment("0").lifecycle_stage]


def experiment_keeps_its_name():
    experiment = client.create_experiment("same")
    return error_of(client.rename_experiment, experiment, "same")


def searches_need_a_positive_number():
    return [error_of(store.search_runs, ["0"], "", ViewType.ALL, number) for number in (0, 50001)]


def history_is_in_the_order_of_time():
    run = new_run().info.run_id
    for time, step in ((30, 1), (10, 2), (20, 1), (10, 1)):
        client.log_metric(run, "a", time + step, timestamp=time, step=step)
    return [(point.timestamp, point.step) for point in client.get_metric_history(run, "a")]


def batch_for_an_unknown_model_writes_nothing():
    if not IS_3:
        return ["RESOURCE_DOES_NOT_EXIST", {}]
    run = new_run().info.run_id
    error = error_of(store.log_batch, run, [Metric("a", 1.0, 1, 1, model_id="m-" + "0" * 32)], [], [])
    return [error.split(":")[0], client.get_run(run).data.metrics]


def models_keep_long_parameters():
    if not IS_3:
        return [20000, "done"]
    model = client.create_logged_model("0", "m", params={"prompt": "x" * 20000})
    client.delete_logged_model(model.model_id)
    store.set_logged_model_tags(model.model_id, [mlflow.entities.LoggedModelTag("review", "done")])
    model = store.get_logged_model(model.model_id, allow_deleted=True)
    return [len(model.params["prompt"]), model.tags["review"]]


def forked_child_loses_no_points():
    run = new_run().info.run_id
    pid = os.fork()
    if pid == 0:
        for step in range(20):
            client.log_metric(run, "forked", step, step=step)
        os._exit(0)
    os.waitpid(pid, 0)
    folder = os.path.join(os.environ["MLW_RUN_FOLDER"], "metrics")
    texts = [open(os.path.join(folder, name)).read() for name in os.listdir(folder)]
    return sum(text.count('"forked"') for text in texts)


def repeated_points_of_an_active_model_are_kept():
    if not IS_3:
        return [2, 1]
    run, model = new_run().info.run_id, client.create_logged_model("0", "m").model_id
    other = client.create_logged_model("0", "n").model_id
    for name in (model, model, other):  # the last one links a point with another model, as log_model does
        store.log_metric(run, Metric("a", 1.0, 1, 1, model_id=name))
    return [len(client.get_metric_history(run, "a")), len(store.get_logged_model(other).metrics)]


def models_have_all_points():
    if not IS_3:
        return [[1, 2], [1, 2]]
    run, model = new_run().info.run_id, client.create_logged_model("0", "m").model_id
    for step in (1, 2):
        store.log_metric(run, Metric("rank", float(step), step, step, model_id=model))
    models = client.search_logged_models(["0"], filter_string="metrics.rank = 2")
    return [[point.step for point in model.metrics] for model in [*models, client.get_logged_model(model)]]


outcomes = {}
for name, check in list(globals().items()):
    if name in sys.argv[1].split():
        try:
            outcomes[name] = check()
        except Exception as error:
            outcomes[name] = repr(error)
print(json.dumps(outcomes))
"""

EXPECTED = {
    "long_tag_is_not_accepted": "INVALID_PARAMETER_VALUE: … exceeds the maximum length of",
    "long_tag_is_truncated": 8000,
    "tags_of_new_runs_are_not_validated": ["mlflow.runName", "what?"],
    "incomplete_inputs_are_rejected": [
        "INVALID_PARAMETER_VALUE: … name cannot be None",
        "INVALID_PARAMETER_VALUE: … digest cannot be None",
        "INVALID_PARAMETER_VALUE: … key cannot be None",
        "INVALID_PARAMETER_VALUE: … exceeds the maximum length of 255",
        "TypeError: … should be a list",
    ],
    "deleted_runs_do_not_change": ["INVALID_PARAMETER_VALUE: … must be in the 'active' state"] * 2,
    "deleted_experiments_get_no_runs": "INVALID_PARAMETER_VALUE: … must be in the 'active' state",
    "experiment_ids_are_numbers": ["INVALID_PARAMETER_VALUE: … must be a valid integer", "Default", "Default"],
    "default_experiment_can_be_deleted": ["deleted", "active"],
    "experiment_keeps_its_name": None,
    "searches_need_a_positive_number": [
        "INVALID_PARAMETER_VALUE: … a positive integer",
        "INVALID_PARAMETER_VALUE: … at most 50000",
    ],
    "history_is_in_the_order_of_time": [[10, 1], [10, 2], [20, 1], [30, 1]],
    "batch_for_an_unknown_model_writes_nothing": ["RESOURCE_DOES_NOT_EXIST", {}],
    "models_keep_long_parameters": [20000, "done"],
    "models_have_all_points": [[1, 2], [1, 2]],
    "forked_child_loses_no_points": 20,
    "repeated_points_of_an_active_model_are_kept": [2, 1],
}


@pytest.fixture(scope="module", params=[NEWEST, BEFORE])
def outcomes(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "work" / "outputs").mkdir(parents=True)
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(IN_RUN),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MLW_RUN_FOLDER": str(folder),
        "MLFLOW_TRACKING_URI": "mlw:run",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    argv = [mlflow_python(request.param), "-c", CHECKS, " ".join(EXPECTED)]
    done = subprocess.run(argv, env=variables, cwd=folder, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", EXPECTED)
def test_store_behaves_as_databases_of_mlflow(outcomes, name):
    assert _same(outcomes[name], EXPECTED[name]), outcomes[name]


def _same(outcome, expected):
    """Compare values. In texts, ``…`` is any text, and anything may follow."""
    if isinstance(expected, list):
        return isinstance(outcome, list) and len(outcome) == len(expected) and all(map(_same, outcome, expected))
    if isinstance(expected, str) and "…" in expected:
        begin, end = expected.split(" … ")
        return isinstance(outcome, str) and outcome.startswith(begin) and end in outcome
    return outcome == expected
