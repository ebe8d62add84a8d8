"""What a script recorded with MLflow besides metrics and parameters, for the command line and the browser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import MlwError
from ..history.nested_runs import name_in_script
from ..history.store import History
from ..model import DATASET_TAG, JsonDict, Run
from ..runfiles.mlflow_models import (
    Dataset,
    LoggedModel,
    ModelVersion,
    has_models,
    read_datasets,
    read_models,
    read_versions,
)
from ..runfiles.mlflow_traces import Span, Trace, read_traces
from ..sanitize import plain
from . import units
from .value_format import finite, format_value

_NOTE = "mlflow.note.content"
_SOURCE_KEYS = ("url", "uri", "path", "name", "delta_table_name")
_MAX_METRICS = 5  # maximum metrics in a cell


@dataclass(frozen=True)
class MlflowData:
    """Recorded data of a run. ``problem`` explains why traces and registered models cannot be read."""

    datasets: list[Dataset]
    models: list[LoggedModel]
    versions: list[ModelVersion]
    traces: list[Trace]
    problem: MlwError | None = None

    def versions_of(self, model: LoggedModel) -> list[ModelVersion]:
        return [version for version in self.versions if version.path and version.path == model.path]

    @property
    def other_versions(self) -> list[ModelVersion]:
        """Versions of models that are not among the outputs."""
        paths = {model.path for model in self.models}
        return [version for version in self.versions if version.path not in paths]


def load_mlflow_data(history: History, run: Run) -> MlflowData:
    """Read the data from the run folder. What the index shows to be missing is not searched."""
    folder = history.paths.root.run(run.spec.folder)
    mlflow_run, owner = mlflow_run_of(history, run)
    has_datasets = any(name.startswith(DATASET_TAG) for name in run.told_tags)
    datasets = read_datasets(folder, owner) if has_datasets else []
    models = read_models(folder, run.files, owner) if has_models(run) else []
    try:
        versions = read_versions(folder, models, mlflow_run)
        return MlflowData(datasets, models, versions, read_traces(folder, mlflow_run))
    except MlwError as error:
        return MlflowData(datasets, models, [], [], error)


def mlflow_run_of(history: History, run: Run) -> tuple[str | None, str | None]:
    """Return the MLflow run of a nested run, and the owner in its records; None for the run that was submitted.

    The first MLflow run of a script shares the records of the submitted run.
    """
    if not run.spec.inside:
        return None, None
    parent = history.get(run.spec.folder)
    name = name_in_script(parent, run.id)
    is_same = name is not None and bool(parent.children[name].get("same"))
    return name, None if is_same else name


def description_of(run: Run) -> str | None:
    """Return the description that the script set with MLflow."""
    text = run.told_tags.get(_NOTE)
    return text if isinstance(text, str) and text.strip() else None


# -- texts ---------------------------------------------------------------------------------------------


def source_text(dataset: Dataset, limit: int = 80) -> str:
    """Return where a dataset comes from: an address, or the type of the source."""
    source = dataset.source
    if isinstance(source, dict):
        named = [source[key] for key in _SOURCE_KEYS if isinstance(source.get(key), str)]
        source = named[0] if named else dataset.source_type if "tags" in source or not source else source
    return format_value(source, limit) or plain(dataset.source_type, limit)


def content_text(dataset: Dataset) -> str:
    """Return the size of a dataset, such as ``3 columns, 150 rows``."""
    schema = dataset.schema if isinstance(dataset.schema, dict) else {}
    profile = dataset.profile if isinstance(dataset.profile, dict) else {}
    columns, rows = schema.get("mlflow_colspec"), profile.get("num_rows")
    parts = [units.pluralize(len(columns), "column")] if isinstance(columns, list) else []
    parts += [f"shape {format_value(shape, 40)}" for shape in _shapes(schema, profile)] if not parts else []
    parts += [units.pluralize(rows, "row")] if type(rows) is int else []
    return ", ".join(parts)


def _shapes(schema: Mapping[str, Any], profile: Mapping[str, Any]) -> list[Any]:
    shape = profile.get("features_shape", profile.get("shape"))
    return [] if shape is None else [shape]


def metrics_text(model: LoggedModel) -> str:
    shown = [f"{plain(name, 60)} {format_value(value)}" for name, value in list(model.metrics.items())[:_MAX_METRICS]]
    more = len(model.metrics) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def version_text(version: ModelVersion) -> str:
    """Return ``name 3 (alias, alias)``."""
    aliases = f" ({', '.join(plain(alias, 40) for alias in version.aliases)})" if version.aliases else ""
    return f"{plain(version.name, 100)} {plain(version.version, 20)}{aliases}"


def span_duration(seconds: float | None) -> str:
    """Return a duration. Spans are often shorter than a tenth of a second."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else units.duration(seconds)


# -- records for programs ------------------------------------------------------------------------------


def to_json(data: MlflowData) -> dict[str, list[JsonDict]]:
    return {
        "datasets": [finite(vars(dataset)) for dataset in data.datasets],
        "logged_models": [finite({**vars(model), "metrics": dict(model.metrics)}) for model in data.models],
        "model_versions": [{**vars(version), "aliases": list(version.aliases)} for version in data.versions],
        "traces": [trace_record(trace) for trace in data.traces],
    }


def trace_record(trace: Trace) -> JsonDict:
    fields = {name: value for name, value in vars(trace).items() if name not in ("id", "experiment", "run")}
    return {"trace_id": trace.id, **fields, "mlflow_run_id": trace.run}


def span_record(span: Span) -> JsonDict:
    fields = {name: value for name, value in vars(span).items() if name not in ("id", "parent", "depth")}
    return {"span_id": span.id, "parent_id": span.parent, **fields}
