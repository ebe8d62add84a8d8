"""Runs with the best values of a metric, and the parameters that differ between them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..history.expression import Compare, Condition, Join
from ..history.nested_runs import DELETED, same_as
from ..history.parameters import run_parameters, text
from ..history.run_query import Query
from ..history.store import History
from ..model import Run


class Ranking:
    """Ranking of runs by the best or last value of a metric. ``goal`` is "max" or "min"."""

    def __init__(self, metric: str, goal: str, by: str) -> None:
        self.metric, self.goal, self.by = metric, goal, by
        self._name = f"{goal}.{metric}" if by == "best" else f"metrics.{metric}"

    def find(self, history: History, filters: Query, limit: int) -> list[Run]:
        """Return the best runs, best first. Nested runs that the script deleted are not ranked."""
        # NaN and infinities indicate failed training and are never ranked.
        largest = sys.float_info.max
        is_finite: Condition = Join("and", (Compare(self._name, ">=", -largest), Compare(self._name, "<=", largest)))
        where = is_finite if filters.where is None else Join("and", (is_finite, filters.where))
        query = replace(filters, where=where, sort=self._name, descending=self.goal == "max", oldest=True)
        size = 2 * limit
        while True:
            runs = history.search(replace(query, limit=size))
            # The first of several MLflow runs in a script has the data of the whole run and counts once, as the
            # nested run.
            ids = {run.id for run in runs}
            ranked = [run for run in runs if run.detail != DELETED and ids.isdisjoint(same_as(run))]
            if len(ranked) >= limit or len(runs) < size:
                return ranked[:limit]
            size *= 4

    def value(self, run: Run) -> Any:
        span = run.spans.get(self.metric)
        best = (span.most if self.goal == "max" else span.least) if span and self.by == "best" else None
        return run.metrics.get(self.metric) if best is None else best

    def row(self, run: Run) -> dict[str, Any]:
        fields = {
            "run_id": run.id,
            "metric": self.metric,
            "goal": self.goal,
            "by": self.by,
            "value": self.value(run),
            "params": {name: True if value is None else value for name, value in run_parameters(run).items()},
            "name": run.name,
            "tags": list(run.tags),
            "status": run.status.value,
            "parent_run_id": run.spec.parent,
        }
        return {self.metric: self.value(run), **fields}  # a field with the metric's name takes precedence


def differing(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Return the differing parameters, as a mapping from name to the value in each run."""
    parameters = [run_parameters(run) for run in runs]
    names = dict.fromkeys(name for item in parameters for name in item)
    columns = {
        name: ["yes" if name in item and item[name] is None else item.get(name) for item in parameters]
        for name in names
    }
    return {name: values for name, values in columns.items() if len({text(value) for value in values}) > 1}
