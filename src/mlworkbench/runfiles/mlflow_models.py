"""Read the datasets, logged models, and registered model versions that a script recorded with MLflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..model import LOGGED_MODEL_TAG, JsonDict, Run
from ..remote.shared.layout import RunFolder
from ..remote.shared.untrusted_json import parse_json
from .mlflow_sqlite import open_database, text_of
from .script_records import read_records

_MAX_ENTRIES = 1000  # maximum datasets, models, versions, and metrics of a model
_MAX_NAME = 500  # characters
_MAX_FIELD = 60_000
_VERSION_COLUMNS = ("name", "version", "source", "run_id", "status", "description", "storage_location")


@dataclass(frozen=True)
class Dataset:
    """A dataset that was an input of the run. ``source``, ``schema``, and ``profile`` are JSON values or None."""

    name: str
    digest: str
    context: str
    source_type: str
    source: Any
    schema: Any
    profile: Any


@dataclass(frozen=True)
class LoggedModel:
    """A model in the outputs. MLflow before version 3 records neither an ID nor metrics of models."""

    name: str
    path: str  # below outputs/, or empty if the model was stored elsewhere
    id: str = ""
    type: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)  # "name (dataset)" if it belongs to a dataset


@dataclass(frozen=True)
class ModelVersion:
    """A version of a registered model."""

    name: str
    version: str
    aliases: tuple[str, ...]
    status: str
    description: str
    model_id: str
    path: str  # of the logged model below outputs/, or empty if it is unknown
    run: str  # the MLflow run that registered it


def read_datasets(folder: RunFolder, mlflow_run: str | None = None) -> list[Dataset]:
    """Return the datasets of the run, or of a nested run in it."""
    datasets: dict[tuple[str, str, str], Dataset] = {}
    for _, data in read_records(folder, "dataset"):
        if data.get("run") != mlflow_run or len(datasets) >= _MAX_ENTRIES:
            continue
        name, digest, context = (_name(data.get(key)) for key in ("name", "digest", "context"))
        source, schema, profile = (_decode(data.get(key)) for key in ("source", "schema", "profile"))
        dataset = Dataset(name, digest, context, _name(data.get("source_type")), source, schema, profile)
        datasets[name, digest, context] = dataset
    return list(datasets.values())


def has_models(run: Run) -> bool:
    """Return whether the index shows logged models. Otherwise, the metric files need not be searched."""
    # Earlier versions of mlw noted only models with files.
    has_files = any(facts.get("as") == "model" for facts in run.files.values())
    return has_files or any(name.startswith(LOGGED_MODEL_TAG) for name in run.told_tags)


def read_models(folder: RunFolder, files: Mapping[str, JsonDict], mlflow_run: str | None = None) -> list[LoggedModel]:
    """Return the models among ``files``, the recorded outputs of the run, with their metrics."""
    models: dict[str, LoggedModel] = {}  # by path, or by ID without a path
    for path, facts in files.items():
        if facts.get("as") == "model" and len(models) < _MAX_ENTRIES:
            models[path] = LoggedModel(_name(facts.get("name")) or path, path)
    keys: dict[str, str] = {}  # ID -> key in models
    metrics: dict[str, dict[str, float]] = {}
    for kind, data in read_records(folder, "model", "model_metric"):
        if kind == "model" and data.get("run") == mlflow_run and len(keys) < _MAX_ENTRIES:
            name, path, model_id, model_type = (_name(data.get(key)) for key in ("name", "path", "id", "type"))
            model = LoggedModel(name, path, model_id, model_type)
            keys[model.id] = model.path or model.id
            models[keys[model.id]] = model
        elif kind == "model_metric":
            _add_metric(metrics.setdefault(_name(data.get("model")), {}), data)
    for model_id, key in keys.items():
        models[key] = replace(models[key], metrics=metrics.get(model_id, {}))
    return list(models.values())


def _add_metric(metrics: dict[str, float], data: JsonDict) -> None:
    name, dataset, value = _name(data.get("name")), _name(data.get("dataset")), data.get("value")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and len(metrics) < _MAX_ENTRIES:
        metrics[f"{name} ({dataset})" if dataset else name] = value


def read_versions(
    folder: RunFolder, models: Iterable[LoggedModel], mlflow_run: str | None = None
) -> list[ModelVersion]:
    """Return the versions that the script registered, with the logged models that they refer to."""
    with open_database(folder) as database:
        if database is None:
            return []
        rest = "ORDER BY name, version LIMIT ?"
        rows = database.select("model_versions", _VERSION_COLUMNS, rest, (_MAX_ENTRIES,))
        aliases: dict[tuple[str, str], list[str]] = {}
        columns = ("name", "version", "alias")
        for row in database.select("registered_model_aliases", columns, "LIMIT ?", (_MAX_ENTRIES,)):
            aliases.setdefault((_name(row["name"]), _name(row["version"])), []).append(_name(row["alias"]))
    known = list(models)
    versions = []
    for row in rows:
        run = _name(row["run_id"])
        if mlflow_run is not None and run != mlflow_run:
            continue
        name, version = _name(row["name"]), _name(row["version"])
        source, location = text_of(row["source"]), text_of(row["storage_location"])
        model_id = source.removeprefix("models:/") if source.startswith("models:/m-") else ""
        model = next((model for model in known if _is_source(model, model_id, source, location)), None)
        facts = (tuple(sorted(aliases.get((name, version), ()))), _name(row["status"]), text_of(row["description"]))
        versions.append(ModelVersion(name, version, *facts, _name(model_id), model.path if model else "", run))
    return versions


def _is_source(model: LoggedModel, model_id: str, *locations: str) -> bool:
    if model_id and model.id == model_id:
        return True
    return bool(model.path) and any(location.endswith("/" + model.path) for location in locations)


def _name(value: Any) -> str:
    return text_of(value)[:_MAX_NAME]


def _decode(value: Any) -> Any:
    """Return a JSON value, or the text itself if it is not JSON."""
    text = text_of(value)[:_MAX_FIELD]
    try:
        return parse_json(text) if text else None
    except ValueError:
        return text
