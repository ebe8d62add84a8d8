"""A run in MLflow's words: parameters, tags, status, datasets, points. Pure but for the reading of its files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...history.parameters import of_run, text
from ...history.series.series import NO_STEP, Series
from ...model import JsonDict, Status
from ...remote.shared.untrusted import parse_json
from ...targets.types import is_local_process
from ..material import Item, plain_value
from .files import open_plain
from .names import LONGEST_NAME, LONGEST_PARAM, LONGEST_TAG, Names, cut

RUN_ID = "mlw.run_id"  # by which a run is known again
PARENT = "mlflow.parentRunId"
OURS = "mlw.tags"  # names of the tags that we set: one that is gone here goes there, too
POINTS, FILES = "mlw.points", "mlw.files"  # what was brought whole

_STATUS = {
    Status.COMPLETED: "FINISHED",
    Status.FAILED: "FAILED",
    Status.CANCELED: "KILLED",
    Status.RUNNING: "RUNNING",
}
_DATASET = "mlflow.dataset."
_NOT_OURS = (PARENT, "mlflow.runName", "mlflow.note.content")
_BIG = 2**63 - 1
_LARGEST = 1.7976931348623157e308  # which MLflow's databases keep in place of infinity
_LINE = 1 << 20


class Point(NamedTuple):
    """As MLflow keeps one."""

    step: int
    time: int  # milliseconds
    value: float

    @property
    def identity(self) -> tuple[int, int, float | None]:
        value = max(-_LARGEST, min(_LARGEST, self.value)) + 0.0 if self.value == self.value else None
        return self.step, self.time, value

    def to_json(self, name: str) -> JsonDict:
        return {"key": name, "value": plain_value(self.value), "timestamp": self.time, "step": self.step}


def status_of(item: Item) -> str:
    return _STATUS.get(item.run.status, "SCHEDULED")


def name_of(item: Item) -> str:
    return cut(item.title, LONGEST_NAME)


def start_of(item: Item) -> int:
    run = item.run
    return milliseconds(run.started if run.started is not None else run.spec.created)


def milliseconds(moment: float) -> int:
    return max(0, min(_BIG, round(moment * 1000))) if moment == moment else 0


def params_of(item: Item, names: Names) -> dict[str, str]:
    return {names(name): cut(_text(value), LONGEST_PARAM) for name, value in of_run(item.run).items()}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    return "true" if value is None else text(plain_value(value)) or ""


def tags_of(item: Item, names: Names) -> dict[str, str]:
    """MLflow's own first, then what people and the script gave, then what only we know."""
    run = item.run
    told = {
        name: _text(value)
        for name, value in run.told_tags.items()
        if name.startswith("mlflow.") and not name.startswith(_DATASET) and name not in _NOT_OURS
    }
    given = dict(_split(tag) for tag in run.tags)
    found = {names(name): value for name, value in {**given, **told, **_system(item), **_own(item)}.items()}
    return {name: cut(value, LONGEST_TAG) for name, value in found.items()}


def _split(tag: str) -> tuple[str, str]:
    """``team=vision`` is a name and a value; ``best`` is a name."""
    name, _, value = tag.partition("=")
    return (name, value) if name else (tag, "")


def _system(item: Item) -> dict[str, str]:
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


def _own(item: Item) -> dict[str, str]:
    run, words = item.run, item.words
    facts = {
        RUN_ID: run.id,
        "mlw.parent_run_id": run.spec.parent,
        "mlw.project": run.spec.project_name,
        "mlw.run_number": run.spec.number or None,
        "mlw.target": run.spec.compute.name,
        "mlw.run_configuration": run.spec.runconfig,
        "mlw.arguments": shlex.join(run.spec.entry.arguments),
        "mlw.status": run.status.value,
        "mlw.ending": words.get("ending"),
        "mlw.cause": run.cause,
        "mlw.exit_code": run.exit,
        "mlw.snapshot": run.spec.snapshot,
        "mlw.gpu": words.get("gpu"),
        "mlw.gpu_cause": words.get("gpu_cause"),
        "mlw.gpu_remedy": words.get("gpu_remedy"),
        "mlw.archived": "true" if run.noted.archived else None,
    }
    return {name: str(value) for name, value in facts.items() if value is not None and value != ""}


def points_of_name(series: Series, name: str, child: str | None) -> Iterator[Point]:
    """Every number. Where no step was ever given it is the number of the point, which charts need."""
    points = series.points(name, child)
    stepless = all(step == NO_STEP for step in points.steps)
    last = 0
    for at, (step, when, value) in enumerate(zip(points.steps, points.times, points.values, strict=True)):
        last = at if stepless else last if step == NO_STEP else step
        yield Point(last, milliseconds(when), value)


def switches_of_name(series: Series, name: str, child: str | None) -> Iterator[Point]:
    """True and false are 1 and 0 in MLflow."""
    for at, one in enumerate(series.values(name, child)):
        if isinstance(one.value, bool):
            yield Point(at if one.step is None else one.step, milliseconds(one.time), float(one.value))


def columns_of_rows(item: Item, series: Series, name: str) -> dict[str, list[Point]]:
    """Numbers in a table that was logged row by row, under the names that the run's record has for them."""
    found: dict[str, list[Point]] = {}
    for at, row in enumerate(series.rows(name, item.child)):
        for column, value in row.items():
            known = item.run.spans.get(f"{name}.{column}")
            if known is not None and isinstance(value, (int, float)) and -_LARGEST <= value <= _LARGEST:
                point = Point(at, milliseconds(known.time), float(value))
                found.setdefault(f"{name}.{column}", []).append(point)
    return found


def datasets_of(item: Item) -> list[JsonDict]:
    """What the script told MLflow of its data. Read from the lines themselves: a run's record has the names only."""
    if not any(name.startswith(_DATASET) for name in item.run.told_tags):
        return []
    found: dict[tuple[str, str, str], JsonDict] = {}
    for told in _records(item.folder.metrics, b'"dataset"'):
        if told.get("run") != item.child:
            continue
        facts = {name: str(told.get(name) or "")[:most] for name, most in _DATA.items()}
        context = str(told.get("context") or "")[:500]
        facts["source_type"] = facts["source_type"] or "unknown"
        facts["source"] = facts["source"] or "{}"
        tags = [{"key": "mlflow.data.context", "value": context}] if context else []
        whole = {name: value for name, value in facts.items() if value}
        found[facts["name"], facts["digest"], context] = {"dataset": whole, "tags": tags}
    return [one for one in found.values() if "name" in one["dataset"] and "digest" in one["dataset"]]


_DATA = {"name": 500, "digest": 36, "source_type": 36, "source": 60_000, "schema": 60_000, "profile": 60_000}


def _records(folder: str, mark: bytes) -> Iterator[JsonDict]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        try:
            with open_plain(os.path.join(folder, name)) as file:
                while line := file.readline(_LINE):
                    if mark in line and b'"k"' in line:
                        yield from _record(line)
        except OSError:
            continue


def _record(line: bytes) -> Iterator[JsonDict]:
    try:
        found = parse_json(line)
        if found["k"] == "dataset" and isinstance(found["d"], dict):
            yield found["d"]
    except (ValueError, KeyError, TypeError):
        return
