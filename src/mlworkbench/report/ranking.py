"""The runs with the best value of a metric, and the parameters that tell them apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..history.expression import Compare, Condition, Join
from ..history.parameters import of_run, text
from ..history.query import Query
from ..history.store import History
from ..model import Run


class Ranking:
    """By which metric, which way, and by which of its values."""

    def __init__(self, metric: str, goal: str, by: str) -> None:
        self.metric, self.goal, self.by = metric, goal, by
        self._name = f"{goal}.{metric}" if by == "best" else f"metrics.{metric}"

    def find(self, history: History, narrow: Query, most: int) -> list[Run]:
        """The best runs, best first."""
        # NaN and infinities are the mark of a run that went wrong, and never the best.
        largest = sys.float_info.max
        real: Condition = Join("and", (Compare(self._name, ">=", -largest), Compare(self._name, "<=", largest)))
        where = real if narrow.where is None else Join("and", (real, narrow.where))
        query = replace(narrow, where=where, sort=self._name, descending=self.goal == "max", oldest=True, limit=most)
        return history.search(query)

    def value(self, run: Run) -> Any:
        span = run.spans.get(self.metric)
        ends = (span.most if self.goal == "max" else span.least) if span and self.by == "best" else None
        return run.metrics.get(self.metric) if ends is None else ends

    def row(self, run: Run) -> dict[str, Any]:
        ours = {
            "run_id": run.id,
            "metric": self.metric,
            "goal": self.goal,
            "by": self.by,
            "value": self.value(run),
            "params": {name: True if value is None else value for name, value in of_run(run).items()},
            "name": run.name,
            "tags": list(run.tags),
            "status": run.status.value,
            "parent_run_id": run.spec.parent,
        }
        return {self.metric: self.value(run), **ours}  # also under its own name, unless that is taken


def differing(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Parameters that are not the same in all the runs: name → the value of each."""
    named = [of_run(run) for run in runs]
    names = dict.fromkeys(name for one in named for name in one)
    told = {name: ["yes" if name in one and one[name] is None else one.get(name) for one in named] for name in names}
    return {name: values for name, values in told.items() if len({text(value) for value in values}) > 1}
