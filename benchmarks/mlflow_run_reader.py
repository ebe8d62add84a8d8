"""Print everything that MLflow has of the runs at tracking URIs, one JSON line for each.

It runs in the Python of the examples. Identifiers are replaced by numbers, so that two executions of the same
script give the same text.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import ViewType

_SOURCE = ("mlflow.source.", "mlflow.user", "mlflow.project", "mlflow.gitRepoURL")
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*")
_STAMPS = re.compile(r"(step[+%]-?\d+[+%]timestamp[+%])\d+[+%][0-9a-f-]+")
_UNIQUE = re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b")


def main() -> None:
    for address in sys.argv[1:]:
        _print_runs(address)


def _print_runs(address: str) -> None:
    mlflow.set_tracking_uri(address)
    client = MlflowClient()
    experiments = client.search_experiments(view_type=ViewType.ALL, order_by=["creation_time ASC"])
    ids = [experiment.experiment_id for experiment in experiments]
    runs = client.search_runs(ids, run_view_type=ViewType.ALL, max_results=1000)
    runs = [client.get_run(run.info.run_id) for run in runs]  # searches in a database leave out the models of inputs
    # Several children of a search begin in the same millisecond.
    runs = sorted(runs, key=lambda run: (sorted(run.data.params.items()), run.info.start_time, run.info.run_id))
    models = _models(client, ids)
    known = {run.info.run_id: f"run-{number}" for number, run in enumerate(runs)}
    known.update((model.model_id, f"model-{number}") for number, model in enumerate(models))
    described = {
        "experiments": [experiment.name for experiment in experiments],
        "runs": {known[run.info.run_id]: _run(client, run) for run in runs},
        "models": {known[model.model_id]: _model(model) for model in models},
        "registered": _registered(client) if _has_database(address) else {},
        "traces": _traces(client, ids) if _has_database(address) else [],
    }
    text = json.dumps(described, sort_keys=True)
    for identifier, name in known.items():
        text = text.replace(identifier, name)
    text = _UNIQUE.sub("unique", _STAMPS.sub(r"\1time", _TIMES.sub("time", text)))
    print("\n" + text)


def _has_database(address: str) -> bool:
    """Return whether there can be traces and registered models. In a run, asking for them would create the database."""
    database = os.path.join(os.environ.get("MLW_RUN_FOLDER", ""), "work", "outputs", "mlflow", "mlflow.db")
    return address != "mlw:run" or os.path.exists(database)


def _run(client: Any, run: Any) -> dict[str, Any]:
    info, data, inputs = run.info, run.data, run.inputs
    # mlw keeps logged models in outputs/models, so that they are outputs of the run. MLflow keeps them beside the runs.
    own_models = "models/" if mlflow.get_tracking_uri().startswith("mlw:") else "\0"
    return {
        "status": info.status,
        "deleted": info.lifecycle_stage != "active",
        "ended": info.end_time is not None,
        "params": data.params,
        "metrics": {name: _series(client, info.run_id, name, value) for name, value in data.metrics.items()},
        "tags": {name: _tag(name, value) for name, value in data.tags.items() if not name.startswith(_SOURCE)},
        "datasets": sorted(_dataset(item) for item in inputs.dataset_inputs) if inputs else [],
        "model inputs": sorted(item.model_id for item in getattr(inputs, "model_inputs", [])),
        "model outputs": sorted((item.model_id, item.step) for item in getattr(run.outputs, "model_outputs", [])),
        "artifacts": [path for path in _files(client, info.run_id, None) if not path.startswith(own_models)],
    }


def _series(client: Any, run_id: str, name: str, last: float) -> dict[str, Any]:
    return {"last": last, "points": len(client.get_metric_history(run_id, name))}


def _tag(name: str, value: str) -> Any:
    if name == "mlflow.runName":
        return "" if re.fullmatch(r"[a-z]+-[a-z]+-\d+|local-.*|examples-.*", value) else value
    if name == "mlflow.log-model.history":
        return [{"path": model["artifact_path"], "flavors": sorted(model["flavors"])} for model in json.loads(value)]
    return value


def _dataset(item: Any) -> str:
    dataset, tags = item.dataset, {tag.key: tag.value for tag in item.tags}
    return json.dumps([dataset.name, dataset.digest, dataset.source_type, dataset.schema, dataset.profile, tags])


def _files(client: Any, run_id: str, folder: str | None) -> list[str]:
    files = []
    for item in client.list_artifacts(run_id, folder):
        files += _files(client, run_id, item.path) if item.is_dir else [item.path]
    return sorted(files)


def _models(client: Any, ids: list[str]) -> list[Any]:
    if not hasattr(client, "search_logged_models"):
        return []
    return sorted(client.search_logged_models(ids, max_results=1000), key=lambda m: (m.creation_timestamp, m.model_id))


def _model(model: Any) -> dict[str, Any]:
    metrics = [[m.key, m.value, m.step, m.dataset_name, m.dataset_digest, m.run_id] for m in model.metrics or ()]
    tags = {name: value for name, value in model.tags.items() if not name.startswith(_SOURCE)}
    return {
        "name": model.name,
        "run": model.source_run_id,
        "status": str(model.status),
        "type": model.model_type,
        "params": model.params,
        "tags": tags,
        "metrics": sorted(metrics, key=str),
        "files": sorted(path.partition("/")[2] for path in _model_files(model.artifact_location)),
    }


def _model_files(location: str) -> list[str]:
    return [item.path for item in mlflow.artifacts.list_artifacts(location)]


def _registered(client: Any) -> dict[str, Any]:
    try:
        return {model.name: len(model.latest_versions) for model in client.search_registered_models()}
    except mlflow.exceptions.MlflowException as error:
        return {"error": str(error)}


def _traces(client: Any, ids: list[str]) -> list[Any]:
    traces = client.search_traces(locations=ids, max_results=200)
    return sorted(
        [str(trace.info.state), sorted(span.name for span in trace.data.spans), len(trace.info.assessments)]
        for trace in traces
    )


if __name__ == "__main__":
    main()
