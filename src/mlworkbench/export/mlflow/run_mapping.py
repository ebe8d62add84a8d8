"""Map a run to MLflow's parameters, tags, status, datasets, and points.

The only side effect is reading run files.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...history.journal_parsing import strict_json
from ...history.parameters import run_parameters, text
from ...history.series.series_store import NO_STEP, Series
from ...model import DATASET_TAG, LOGGED_MODEL_TAG, JsonDict, Status
from ...runfiles.script_records import read_records
from ...targets.types import is_local_process
from ..run_data import Item
from .name_mapping import MAX_NAME_LENGTH, MAX_PARAM_LENGTH, NameMapper, truncate

RUN_ID = "mlw.run_id"  # identifies the run in later exports
PARENT = "mlflow.parentRunId"
TAG_NAMES = "mlw.tags"  # names of tags set by mlw: a tag that the run no longer has is deleted on the server
POINTS, FILES, ENTITIES = "mlw.points", "mlw.files", "mlw.entities"  # digests of completely uploaded data

_STATUS = {
    Status.COMPLETED: "FINISHED",
    Status.FAILED: "FAILED",
    Status.CANCELED: "KILLED",
    Status.RUNNING: "RUNNING",
}
_RECORD_PREFIXES = DATASET_TAG, LOGGED_MODEL_TAG
_OVERRIDDEN_TAGS = (PARENT, "mlflow.runName", "mlflow.note.content")
_MAX_TIME = 2**63 - 1
_LARGEST = 1.7976931348623157e308  # stored by MLflow's databases instead of infinity


class Point(NamedTuple):
    """A point of a metric as MLflow stores it."""

    step: int
    time: int  # milliseconds
    value: float

    @property
    def identity(self) -> tuple[int, int, float | None]:
        value = max(-_LARGEST, min(_LARGEST, self.value)) + 0.0 if self.value == self.value else None
        return self.step, self.time, value

    def to_json(self, name: str) -> JsonDict:
        return {"key": name, "value": strict_json(self.value), "timestamp": self.time, "step": self.step}


def status_of(item: Item) -> str:
    return _STATUS.get(item.run.status, "SCHEDULED")


def name_of(item: Item) -> str:
    return truncate(item.title, MAX_NAME_LENGTH)


def start_of(item: Item) -> int:
    run = item.run
    return milliseconds(run.started if run.started is not None else run.spec.created)


def milliseconds(moment: float) -> int:
    return max(0, min(_MAX_TIME, round(moment * 1000))) if moment == moment else 0


def params_of(item: Item, names: NameMapper) -> dict[str, str]:
    return {names(name): truncate(_text(value), MAX_PARAM_LENGTH) for name, value in run_parameters(item.run).items()}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    return "true" if value is None else text(strict_json(value)) or ""


def tags_of(item: Item, names: NameMapper, max_length: int) -> dict[str, str]:
    """Return all tags.

    Later groups take precedence: user tags, MLflow tags of the script, system tags, and mlw tags.
    """
    run = item.run
    script_tags = {
        name: _text(value)
        for name, value in run.told_tags.items()
        if name.startswith("mlflow.") and not name.startswith(_RECORD_PREFIXES) and name not in _OVERRIDDEN_TAGS
    }
    user_tags = dict(_split_tag(tag) for tag in run.tags)
    tags = {
        names(name): value
        for name, value in {**user_tags, **script_tags, **_mlflow_tags(item), **_mlw_tags(item)}.items()
    }
    return {name: truncate(value, max_length) for name, value in tags.items()}


def _split_tag(tag: str) -> tuple[str, str]:
    """Split a tag: ``team=vision`` has a name and a value, ``best`` only a name."""
    name, _, value = tag.partition("=")
    return (name, value) if name else (tag, "")


def _mlflow_tags(item: Item) -> dict[str, str]:
    run = item.run
    git = run.spec.git
    facts = {
        "mlflow.runName": name_of(item),
        "mlflow.user": run.spec.user,
        "mlflow.source.name": run.spec.entry.name,
        "mlflow.source.type": "LOCAL" if is_local_process(run.spec.compute) else "JOB",
        "mlflow.source.git.commit": git.commit if git else None,
        "mlflow.source.git.branch": git.branch if git else None,
        "mlflow.source.git.dirty": str(git.dirty).lower() if git and git.commit else None,
        "mlflow.note.content": run.noted.note or run.told_tags.get("mlflow.note.content"),
    }
    return {name: str(value) for name, value in facts.items() if value}


def _mlw_tags(item: Item) -> dict[str, str]:
    run, display = item.run, item.display
    facts = {
        RUN_ID: run.id,
        "mlw.parent_run_id": run.spec.parent,
        "mlw.project": run.spec.project_name,
        "mlw.run_number": run.spec.number or None,
        "mlw.target": run.spec.compute.name,
        "mlw.run_configuration": run.spec.runconfig,
        "mlw.arguments": shlex.join(run.spec.entry.arguments),
        "mlw.status": run.status.value,
        "mlw.ending": display.get("ending"),
        "mlw.cause": run.cause,
        "mlw.exit_code": run.exit,
        "mlw.snapshot": run.spec.snapshot,
        "mlw.gpu": display.get("gpu"),
        "mlw.gpu_cause": display.get("gpu_cause"),
        "mlw.gpu_remedy": display.get("gpu_remedy"),
        "mlw.archived": "true" if run.noted.archived else None,
    }
    return {name: str(value) for name, value in facts.items() if value is not None and value != ""}


def numeric_points(series: Series, name: str, child: str | None) -> Iterator[Point]:
    """Yield all numeric points. If none has a step, use their indexes, because charts need steps."""
    points = series.points(name, child)
    stepless = all(step == NO_STEP for step in points.steps)
    last = 0
    for index, (step, time, value) in enumerate(zip(points.steps, points.times, points.values, strict=True)):
        last = index if stepless else last if step == NO_STEP else step
        yield Point(last, milliseconds(time), value)


def boolean_points(series: Series, name: str, child: str | None) -> Iterator[Point]:
    """Yield booleans as 1 and 0."""
    for index, entry in enumerate(series.values(name, child)):
        if isinstance(entry.value, bool):
            yield Point(index if entry.step is None else entry.step, milliseconds(entry.time), float(entry.value))


def table_columns(item: Item, series: Series, name: str) -> dict[str, list[Point]]:
    """Return the numeric columns of a table that was logged row by row, keyed by metric name."""
    columns: dict[str, list[Point]] = {}
    for index, row in enumerate(series.rows(name, item.child)):
        for column, value in row.items():
            span = item.run.spans.get(f"{name}.{column}")
            if span is not None and isinstance(value, (int, float)) and -_LARGEST <= value <= _LARGEST:
                point = Point(index, milliseconds(span.time), float(value))
                columns.setdefault(f"{name}.{column}", []).append(point)
    return columns


def datasets_of(item: Item) -> list[JsonDict]:
    """Return the datasets that the script logged with MLflow.

    They are read from the metric files, because the record contains only their names.
    """
    if not any(name.startswith(DATASET_TAG) for name in item.run.told_tags):
        return []
    datasets: dict[tuple[str, str, str], JsonDict] = {}
    for _, record in read_records(item.folder, "dataset"):
        if record.get("run") != item.owner:
            continue
        facts = {name: str(record.get(name) or "")[:limit] for name, limit in _DATASET_FIELDS.items()}
        context = str(record.get("context") or "")[:500]
        facts["source_type"] = facts["source_type"] or "unknown"
        facts["source"] = facts["source"] or "{}"
        tags = [{"key": "mlflow.data.context", "value": context}] if context else []
        fields = {name: value for name, value in facts.items() if value}
        datasets[facts["name"], facts["digest"], context] = {"dataset": fields, "tags": tags}
    return [dataset for dataset in datasets.values() if "name" in dataset["dataset"] and "digest" in dataset["dataset"]]


_DATASET_FIELDS = {"name": 500, "digest": 36, "source_type": 36, "source": 60_000, "schema": 60_000, "profile": 60_000}
