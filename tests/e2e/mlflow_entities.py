"""A script that uses most of MLflow, and a comparison of what two servers or experiments have of it."""

from __future__ import annotations

# Everything that MLflow records beyond metrics. The same script runs in mlw and directly against the server.
ENTITIES = """
import mlflow, os, sys

client = mlflow.MlflowClient()
name = sys.argv[1]
if mlflow.get_tracking_uri() != "mlw:run":
    mlflow.set_experiment(name)
is_3 = hasattr(mlflow, "initialize_logged_model")
with mlflow.start_run(description="what it is") as run:
    mlflow.set_tags({"a:b": "c", "größe": "5", "long": "x" * 4000})
    mlflow.log_params({"lr:0": 0.1, "text": "ü" * 500})
    for step, value in ((-1, 0.5), (3, float("nan")), (2, float("inf")), (10, -1e-300)):
        mlflow.log_metric("acc/val:1", value, step=step, timestamp=1763190000123 + step)
    os.makedirs("files", exist_ok=True)
    open("files/weights", "w").write("w" * 10)
    client.create_registered_model(name, tags={"team": "vision"}, description="all of them")
    if is_3:
        model = mlflow.initialize_logged_model("net", params={"depth": "3"}, tags={"kind": "cnn"}, model_type="torch")
        client.log_model_artifacts(model.model_id, "files")
        mlflow.finalize_logged_model(model.model_id, "READY")
        client.set_logged_model_tags(model.model_id, {"later": "yes"})
        mlflow.log_metric("acc", 0.75, step=7, timestamp=1763190001000, model_id=model.model_id)
        mlflow.log_outputs(models=[mlflow.entities.LoggedModelOutput(model.model_id, 0)])
        source = {"source": f"models:/{model.model_id}", "model_id": model.model_id}
    else:
        mlflow.log_artifacts("files", "net")
        source = {"source": mlflow.get_artifact_uri("net")}
    client.create_model_version(name, run_id=run.info.run_id, tags={"t": "1"}, description="first", **source)
    client.set_registered_model_alias(name, "best", 1)

    @mlflow.trace
    def inner(x):
        return x + 1

    @mlflow.trace(name="outer", span_type="CHAIN", attributes={"k": [1]})
    def outer(x):
        return inner(x) * 2

    outer(3)
"""

# Prints these entities of an experiment, without what differs between any two runs: IDs, times, and artifact locations.
COMPARE = """
import json, sys
from mlflow import MlflowClient

client = MlflowClient(sys.argv[1])
history = client.get_metric_history

def span(one, names):
    attributes = {name: value for name, value in one.attributes.items() if name != "mlflow.traceRequestId"}
    return [one.name, names.get(one.parent_id), one.inputs, one.outputs, one.span_type, str(one.status), attributes]

def look(experiment, name):
    place = [client.get_experiment_by_name(experiment).experiment_id]
    (run,) = client.search_runs(place)
    found = {
        "tags": {key: value for key, value in run.data.tags.items() if not key.startswith(("mlw.", "mlflow.source"))},
        "params": run.data.params,
        "last": {key: repr(value) for key, value in run.data.metrics.items()},
        "series": {key: sorted((one.step, one.timestamp, repr(one.value)) for one in history(run.info.run_id, key))
                   for key in run.data.metrics},
        "files": sorted(one.path for one in client.list_artifacts(run.info.run_id)),
    }
    del found["tags"]["mlflow.runName"]
    ids = {run.info.run_id: "RUN"}
    if hasattr(client, "search_logged_models"):
        (model,) = client.search_logged_models(place)
        ids[model.model_id] = "MODEL"
        found["model"] = [model.name, model.model_type, str(model.status), model.params, ids[model.source_run_id],
                          {key: value.replace(name, "NAME") for key, value in model.tags.items()
                           if not key.startswith(("mlw.", "mlflow.source"))},
                          [(one.key, one.value, one.step, one.timestamp) for one in model.metrics],
                          sorted(one.path for one in client.list_logged_model_artifacts(model.model_id))]
        found["outputs"] = [[ids[one.model_id], one.step] for one in run.outputs.model_outputs]
    registered = client.get_registered_model(name)
    (version,) = client.search_model_versions(f"name = '{name}'")
    aliases = {key: str(value) for key, value in registered.aliases.items()}
    found["registered"] = [registered.description, registered.tags, aliases]
    source = version.source.removeprefix(run.info.artifact_uri)
    for one in ids:
        source = source.replace(one, ids[one])
    found["version"] = [str(version.version), version.description, ids[version.run_id], source, version.status,
                        {key: value for key, value in version.tags.items() if not key.startswith("mlw.")}]
    found["traces"] = []
    for trace in client.search_traces(place) if "model" in found else ():  # exports to MLflow 2 contain no traces
        info, names = trace.info, {one.span_id: one.name for one in trace.data.spans}
        metadata = getattr(info, "trace_metadata", None) or info.request_metadata
        found["traces"].append([str(info.status), info.tags.get("mlflow.traceName"), ids[metadata["mlflow.sourceRun"]],
                                metadata["mlflow.traceInputs"], metadata["mlflow.traceOutputs"],
                                sorted((span(one, names) for one in trace.data.spans), key=str)])
    return found

print(json.dumps([look(name, name) for name in sys.argv[2:]]))
"""
