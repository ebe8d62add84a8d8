"""Group runs by a value, with statistics on their metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from ..errors import UnknownName, UsageError
from ..history.parameters import number
from ..history.run_columns import FIELDS, ListedRun, RunColumns, Value
from ..history.run_query import Query
from ..history.run_values import METRIC, PARAMETER
from ..history.store import History, query_index
from ..metric_goal import MAX, find_goal
from ..model import Run
from .value_format import format_value

_PARAMETER, _TAGS, _METRIC = "params.", ("tags.", "tag."), "metrics."
_MAX_NAMES = 40
_RESERVED = ("runs", "metrics")


def groups(history: History, query: Query, name: str, goals: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return a row for each value: sorted numbers first, runs without a value last.

    ``goals``: whether higher or lower values of metrics are better, where the runs do not state it.
    """
    if name in _RESERVED:
        raise UsageError(f"--group {name} is reserved", f"use params.{name}, tags.{name}, or metrics.{name}")
    return query_index(
        history, lambda connection, check: _groups(RunColumns(connection, check, query, name), name, goals)
    )


def _groups(columns: RunColumns, name: str, goals: Mapping[str, str] | None) -> list[dict[str, Any]]:
    value_of = _values(columns, name)
    runs_by_value: dict[Any, list[ListedRun]] = {}
    normalized: dict[tuple[type, Value], Any] = {}  # by type, because True == 1
    for run in columns.runs:
        value = value_of(run)
        key = type(value), value
        if key not in normalized:
            normalized[key] = _normalize(value)
        runs_by_value.setdefault(normalized[key], []).append(run)
    if columns.runs and set(runs_by_value) == {None} and name not in FIELDS:
        raise UnknownName("group key", name, _group_names(columns))
    values = sorted(runs_by_value, key=_sort_key)
    statistics = _metric_statistics(columns, [runs_by_value[value] for value in values], goals)
    return [
        {name: value, "runs": len(runs_by_value[value]), "metrics": metrics}
        for value, metrics in zip(values, statistics, strict=True)
    ]


def _values(columns: RunColumns, name: str) -> Callable[[ListedRun], Value]:
    """Return a function that looks up a name in the run fields, parameters, tags, and metrics, in this order."""
    if name.startswith(_TAGS):
        return lambda run: _tag(run, name.partition(".")[2])
    if name in FIELDS:
        return lambda run: ", ".join(run.tags) or None if name == "tags" else run.field
    parameters: Mapping[int, Value] = {}
    metrics: Mapping[int, Value] = {}
    if not name.startswith(_METRIC):
        parameters = columns.parameter(name.removeprefix(_PARAMETER))
    if not name.startswith(_PARAMETER):
        metrics = columns.metric(name.removeprefix(_METRIC))
    has_tags = not name.startswith((_METRIC, _PARAMETER))

    def value_of(run: ListedRun) -> Value:
        value = parameters.get(run.seq)
        if value is None and has_tags and run.tags:
            value = _tag(run, name)
        return metrics.get(run.seq) if value is None else value

    return value_of


def _tag(run: ListedRun, name: str) -> str | None:
    """Return ``vision`` for ``team=vision``, or "yes" for a tag without a value."""
    for tag in run.tags:
        for sign in "=:":
            key, separator, value = tag.partition(sign)
            if separator and key == name:
                return value
    return "yes" if name in run.tags else None


def _normalize(value: Value) -> Any:
    """Normalize a value, so that ``0.1`` and ``0.10`` are the same."""
    if value is None or isinstance(value, bool):
        return value
    parsed = number(value)
    return format_value(value, 200) if parsed is None else parsed


def _sort_key(value: Any) -> tuple[int, float, str]:
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


def _group_names(columns: RunColumns) -> list[str]:
    tags = (f"tags.{tag.partition('=')[0]}" for run in columns.runs for tag in run.tags if "=" in tag)
    names = dict.fromkeys((*(name.name for name in columns.names(PARAMETER)), *tags))
    return [*list(names)[:_MAX_NAMES], *FIELDS]


class _Group(NamedTuple):
    """The positions of a group's runs in a list of runs, and a function that selects the values there."""

    positions: list[int]
    select: Callable[[Sequence[float]], Sequence[float]]


def _metric_statistics(
    columns: RunColumns, members: Sequence[Sequence[ListedRun]], defaults: Mapping[str, str] | None
) -> list[dict[str, Any]]:
    """Return the statistics of each metric for each group."""
    group_of = {run.seq: index for index, runs in enumerate(members) for run in runs}
    ids = {run.seq: run.id for run in columns.runs}
    goals = columns.runs_with_goals()
    stated: list[list[Run]] = [
        [goals[run.seq] for run in runs if run.seq in goals] if goals else [] for runs in members
    ]
    statistics: list[dict[str, Any]] = [{} for _ in members]
    last_seqs: list[int] = []
    groups: dict[int, _Group] = {}
    for name in columns.names(METRIC):
        if name.numbers:
            seqs, values = columns.numbers(name)
            if seqs is not last_seqs:
                last_seqs, groups = seqs, _positions(seqs, group_of)
            for index, group in groups.items():
                numbers, positions = _finite_values(group.select(values), group.positions)
                if numbers:
                    goal = find_goal(name.name, stated[index], defaults)
                    row = statistics[index][name.name] = _statistics(numbers, goal)
                    if goal is not None:
                        # The newest one, if several runs have this value.
                        row["best_run"] = ids[seqs[positions[-1 - numbers[::-1].index(row["best"])]]]
    return statistics


def _positions(seqs: Sequence[int], group_of: Mapping[int, int]) -> dict[int, _Group]:
    positions = defaultdict(list)
    for position, index in enumerate(map(group_of.get, seqs)):
        positions[index].append(position)
    return {index: _Group(at, _selector(at)) for index, at in positions.items() if index is not None}


def _selector(positions: list[int]) -> Callable[[Sequence[float]], Sequence[float]]:
    select = itemgetter(*positions)
    return select if len(positions) > 1 else lambda values: (select(values),)


def _finite_values(values: Sequence[float], positions: list[int]) -> tuple[Sequence[float], list[int]]:
    if math.isfinite(min(values)) and math.isfinite(max(values)):
        return values, positions
    pairs = [pair for pair in zip(values, positions, strict=True) if math.isfinite(pair[0])]
    return [value for value, _ in pairs], [position for _, position in pairs]


def _statistics(numbers: Sequence[float], goal: str | None) -> dict[str, Any]:
    """Return statistics of a group. There may be 100,000 numbers, so that each step is a call of a C function."""
    least, greatest = min(numbers), max(numbers)
    mean = _finite(lambda: math.fsum(numbers) / len(numbers))
    count = len(numbers)
    return {
        "runs": count,
        "goal": goal,
        "best": None if goal is None else greatest if goal == MAX else least,
        "best_run": None,
        "mean": mean,
        "deviation": None if mean is None or count == 1 else _finite(lambda: _deviation(numbers, mean)),
        "least": least,
        "greatest": greatest,
    }


def _deviation(numbers: Sequence[float], mean: float) -> float:
    return math.dist(numbers, [mean] * len(numbers)) / math.sqrt(len(numbers) - 1)


def _finite(compute: Callable[[], float]) -> float | None:
    """Return the result, or None if the numbers are too large."""
    try:
        result = compute()
    except OverflowError:
        return None
    return result if math.isfinite(result) else None
