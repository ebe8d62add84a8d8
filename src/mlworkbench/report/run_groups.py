"""Group runs by a value, with statistics on their metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

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


def groups(history: History, query: Query, name: str) -> list[dict[str, Any]]:
    """Return a row for each value: sorted numbers first, runs without a value last."""
    if name in _RESERVED:
        raise UsageError(f"--group {name} is reserved", f"use params.{name}, tags.{name}, or metrics.{name}")
    return query_index(history, lambda connection, check: _groups(RunColumns(connection, check, query, name), name))


def _groups(columns: RunColumns, name: str) -> list[dict[str, Any]]:
    value_of = _values(columns, name)
    runs_by_value: dict[Any, list[ListedRun]] = {}
    for run in columns.runs:
        runs_by_value.setdefault(_normalize(value_of(run)), []).append(run)
    if columns.runs and set(runs_by_value) == {None} and name not in FIELDS:
        raise UnknownName("group key", name, _group_names(columns))
    values = sorted(runs_by_value, key=_sort_key)
    statistics = _metric_statistics(columns, [runs_by_value[value] for value in values])
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
        if value is None and has_tags:
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


def _metric_statistics(columns: RunColumns, members: Sequence[Sequence[ListedRun]]) -> list[dict[str, Any]]:
    """Return the statistics of each metric for each group."""
    group_of = {run.seq: index for index, runs in enumerate(members) for run in runs}
    ids = {run.seq: run.id for run in columns.runs}
    goals = columns.runs_with_goals()
    stated: list[list[Run]] = [[goals[run.seq] for run in runs if run.seq in goals] for runs in members]
    statistics: list[dict[str, Any]] = [{} for _ in members]
    for name in columns.names(METRIC):
        if name.numbers:
            pairs: dict[int, list[tuple[float, int]]] = {}
            for seq, value in zip(*columns.numbers(name), strict=True):
                index = group_of.get(seq)
                if index is not None:
                    pairs.setdefault(index, []).append((value, seq))
            for index, values in pairs.items():
                finite = [pair for pair in values if math.isfinite(pair[0])]
                if finite:
                    statistics[index][name.name] = _statistics(finite, find_goal(name.name, stated[index]), ids)
    return statistics


def _statistics(pairs: Sequence[tuple[float, int]], goal: str | None, ids: Mapping[int, str]) -> dict[str, Any]:
    numbers = [value for value, _ in pairs]
    least, greatest = min(numbers), max(numbers)
    best = None if goal is None else greatest if goal == MAX else least
    mean = _finite(lambda: math.fsum(numbers) / len(numbers))
    return {
        "runs": len(numbers),
        "goal": goal,
        "best": best,
        "best_run": None if best is None else ids[max(seq for value, seq in pairs if value == best)],
        "mean": mean,
        "deviation": None if mean is None or len(numbers) == 1 else _finite(lambda: _deviation(numbers, mean)),
        "least": least,
        "greatest": greatest,
    }


def _deviation(numbers: Iterable[float], mean: float) -> float:
    squares = [(value - mean) ** 2 for value in numbers]
    return math.sqrt(math.fsum(squares) / (len(squares) - 1))


def _finite(compute: Callable[[], float]) -> float | None:
    """Return the result, or None if the numbers are too large."""
    try:
        result = compute()
    except OverflowError:
        return None
    return result if math.isfinite(result) else None
