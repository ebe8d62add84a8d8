"""Run comparison: differences, common curves, and common images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import UsageError
from ...history.child_runs import children_of_sweep
from ...history.parameters import number, run_parameters
from ...history.run_query import Query
from ...history.store import History
from ...model import Run
from ...report.run_differences import differences
from ...report.value_format import format_value
from ...sanitize import plain
from .outputs import list_images
from .runs import row

MAX_RUNS = 500  # maximum number of runs to compare
MAX_CURVES = 50  # maximum number of runs with curves
MAX_IMAGE_RUNS = 12  # maximum number of runs with images side by side
_MAX_CELL = 200
_DIGEST_LENGTH = 12  # displayed characters of a digest; enough to be unique
_DIGESTS = ("SnapshotId", "environment.digest")
_MAX_IMAGES = 24  # maximum number of image paths
_MAX_SUGGESTED = 60  # maximum number of suggested runs


@dataclass(frozen=True)
class Comparison:
    """Comparison of runs.

    Tables contain formatted values of each run, in the order of ``runs``.
    """

    runs: list[dict[str, Any]]
    tables: dict[str, dict[str, list[str]]]  # keys: parameters, metrics, properties, packages
    unknown_packages: list[str]
    series: dict[str, list[str]]  # metric → runs with more than one point; most common metrics first
    numbers: dict[str, list[float | None]]  # keys: params.NAME, metrics.NAME, duration; for plots
    changed: dict[str, int]  # run → number of files that differ from the first run
    project: tuple[str, str] | None = None  # ID and folder of the project shared by all runs

    @property
    def ids(self) -> list[str]:
        return [str(run["id"]) for run in self.runs]


def compare(history: History, ids: Sequence[str]) -> Comparison:
    """Compare runs. A single sweep is replaced by its child runs.

    Raise ``UnknownName`` if a run is unknown.
    """
    if len(ids) == 1:
        ids = expand_sweeps(history, ids)[:MAX_RUNS]
    if len(ids) > MAX_RUNS:
        raise UsageError(f"cannot compare {len(ids)} runs", f"select at most {MAX_RUNS} runs")
    runs = list({run.id: run for run in map(history.get, ids)}.values())
    if not runs:
        raise UsageError("no runs to compare", "select runs on the Runs page")
    facts = differences(history.paths.root, runs, lines=False)
    kinds = ("parameters", "metrics", "properties", "packages")
    return Comparison(
        [row(run) for run in runs],
        {kind: _table(facts[kind]) for kind in kinds},
        facts["packages_unknown"],
        _series(runs),
        _numbers(runs),
        {part["run"]: len(part["files"]) for part in facts["code"]},
        _common_project(runs),
    )


def expand_sweeps(history: History, ids: Sequence[str]) -> list[str]:
    """Replace each sweep with its child runs that still exist."""
    expanded: dict[str, None] = {}
    for run in map(history.get, ids):
        children = [child.id for child in children_of_sweep(history, run.spec)] if run.spec.sweep else []
        expanded.update(dict.fromkeys(children or [run.id]))
    return list(expanded)


def _common_project(runs: Sequence[Run]) -> tuple[str, str] | None:
    projects = {(run.spec.project_id, run.spec.project_path) for run in runs}
    return next(iter(projects)) if len(projects) == 1 else None


def _table(rows: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    return {
        plain(name, _MAX_CELL): [
            format_value(value, _MAX_CELL)[: _DIGEST_LENGTH if name in _DIGESTS else None] for value in values
        ]
        for name, values in rows.items()
    }


def _series(runs: Sequence[Run]) -> dict[str, list[str]]:
    drawable: dict[str, list[str]] = {}
    for run in runs:
        for name, span in run.spans.items():
            if span.length > 1:
                drawable.setdefault(name, []).append(run.id)
    return dict(sorted(drawable.items(), key=lambda item: -len(item[1])))


def _numbers(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Return the values for each name whose value is a number in at least two runs."""
    columns: dict[str, list[float | None]] = {}
    for position, run in enumerate(runs):
        values_by_name = {f"params.{name}": number(value) for name, value in run_parameters(run).items()}
        values_by_name.update({f"metrics.{name}": _finite(value) for name, value in run.metrics.items()})
        if run.duration is not None:
            values_by_name["duration"] = run.duration
        for name, value in values_by_name.items():
            if value is not None:
                columns.setdefault(name, [None] * len(runs))[position] = float(value)
    return {name: values for name, values in columns.items() if sum(value is not None for value in values) > 1}


def _finite(value: Any) -> float | None:
    is_finite = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf
    return float(value) if is_finite else None


def varying(numbers: Mapping[str, Sequence[float | None]]) -> list[str]:
    """Return the names whose values differ, parameters first."""
    names = [name for name, values in numbers.items() if len({value for value in values if value is not None}) > 1]
    return sorted(names, key=lambda name: (not name.startswith("params."), name == "duration"))


def images(history: History, ids: Sequence[str]) -> dict[str, list[str]]:
    """Map output paths to the runs that have an image there, most common paths first."""
    runs_by_path: dict[str, list[str]] = {}
    for run_id in ids[:MAX_IMAGE_RUNS]:
        for picture in list_images(history, run_id):
            if picture.here:
                runs_by_path.setdefault(picture.path, []).append(run_id)
    return dict(sorted(runs_by_path.items(), key=lambda item: (-len(item[1]), item[0]))[:_MAX_IMAGES])


def suggest_runs(history: History, ids: Sequence[str]) -> dict[str, str]:
    """Map the IDs of runs that can be added to their labels, newest first."""
    first = history.get(ids[0]) if ids else None
    newest = history.search(Query(first.spec.project_id if first else None, limit=_MAX_SUGGESTED))
    return {run.id: _label(run) for run in newest if run.id not in ids}


def _label(run: Run) -> str:
    details = [plain(word, 60) for word in (run.name, run.spec.entry.name, *run.tags[:2]) if word]
    return " · ".join([run.id, *details])
