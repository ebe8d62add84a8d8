"""Runs side by side: what differs, what can be drawn over each other, what can be looked at together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import UsageError
from ...history.children import children_of_sweep
from ...history.parameters import number, of_run
from ...history.query import Query
from ...history.store import History
from ...model import Run
from ...report.differences import differences
from ...report.plain import plain
from ...report.values import shown
from .outputs import pictures
from .runs import row

MOST = 500  # runs
DRAWN = 50  # runs whose curves are drawn
PICTURED = 12  # runs whose images stand side by side
_CELL = 200
_DIGEST = 12  # as many characters of one tell it from all others
_DIGESTS = ("SnapshotId", "environment.digest")
_IMAGES = 24  # paths
_OFFERED = 60  # runs to add


@dataclass(frozen=True)
class Comparison:
    """Tables have the values of each run in the order of ``runs``, fit to be shown."""

    runs: list[dict[str, Any]]
    tables: dict[str, dict[str, list[str]]]  # parameters, metrics, properties, packages
    unknown_packages: list[str]
    series: dict[str, list[str]]  # name → the runs that have more than one point of it, those that most have first
    numbers: dict[str, list[float | None]]  # params.NAME, metrics.NAME: for scatter and parallel coordinates
    changed: dict[str, int]  # run → files of its code that differ from the first one's
    home: tuple[str, str] | None = None  # id and folder of the project that all of them are of

    @property
    def ids(self) -> list[str]:
        return [str(one["id"]) for one in self.runs]


def compare(history: History, ids: Sequence[str]) -> Comparison:
    """``UnknownName`` if one of them is not there. A single sweep means its children."""
    if len(ids) == 1:
        ids = meant(history, ids)[:MOST]
    if len(ids) > MOST:
        raise UsageError(f"cannot compare {len(ids)} runs", f"select at most {MOST} runs")
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
        _home(runs),
    )


def meant(history: History, ids: Sequence[str]) -> list[str]:
    """Whoever compares a sweep means its children, those that are still there."""
    found: dict[str, None] = {}
    for run in map(history.get, ids):
        children = [one.id for one in children_of_sweep(history, run.spec)] if run.spec.sweep else []
        found.update(dict.fromkeys(children or [run.id]))
    return list(found)


def _home(runs: Sequence[Run]) -> tuple[str, str] | None:
    homes = {(run.spec.project_id, run.spec.project_path) for run in runs}
    return next(iter(homes)) if len(homes) == 1 else None


def _table(found: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    return {
        plain(name, _CELL): [shown(value, _CELL)[: _DIGEST if name in _DIGESTS else None] for value in values]
        for name, values in found.items()
    }


def _series(runs: Sequence[Run]) -> dict[str, list[str]]:
    drawable: dict[str, list[str]] = {}
    for run in runs:
        for name, span in run.spans.items():
            if span.length > 1:
                drawable.setdefault(name, []).append(run.id)
    return dict(sorted(drawable.items(), key=lambda one: -len(one[1])))


def _numbers(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Of each name that is a number in two of the runs at least."""
    found: dict[str, list[float | None]] = {}
    for at, run in enumerate(runs):
        told = {f"params.{name}": number(value) for name, value in of_run(run).items()}
        told.update({f"metrics.{name}": _finite(value) for name, value in run.metrics.items()})
        if run.duration is not None:
            told["duration"] = run.duration
        for name, value in told.items():
            if value is not None:
                found.setdefault(name, [None] * len(runs))[at] = float(value)
    return {name: values for name, values in found.items() if sum(one is not None for one in values) > 1}


def _finite(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf
    return float(value) if known else None


def varying(numbers: Mapping[str, Sequence[float | None]]) -> list[str]:
    """The names whose values are not all the same; parameters first."""
    names = [name for name, values in numbers.items() if len({one for one in values if one is not None}) > 1]
    return sorted(names, key=lambda name: (not name.startswith("params."), name == "duration"))


def images(history: History, ids: Sequence[str]) -> dict[str, list[str]]:
    """Path below the outputs → the runs that have an image there, the most common paths first."""
    found: dict[str, list[str]] = {}
    for one in ids[:PICTURED]:
        for picture in pictures(history, one):
            if picture.here:
                found.setdefault(picture.path, []).append(one)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))[:_IMAGES])


def others(history: History, ids: Sequence[str]) -> dict[str, str]:
    """Runs that could be added, the newest first: id → words."""
    first = history.get(ids[0]) if ids else None
    newest = history.search(Query(first.spec.project_id if first else None, limit=_OFFERED))
    return {run.id: _words(run) for run in newest if run.id not in ids}


def _words(run: Run) -> str:
    more = [plain(word, 60) for word in (run.name, run.spec.entry.name, *run.tags[:2]) if word]
    return " · ".join([run.id, *more])
