"""The runs of a sweep side by side: by which metric they are judged, and which one is the best."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..model import JsonDict, Run, Status
from ..sweep import MORE_IS_BETTER, goal_of

_HELD_OUT = re.compile(r"(^|[^a-z])(val|valid|validation|test|eval|dev)([^a-z]|$)")


def judged_by(sweep: JsonDict, children: Sequence[Run]) -> tuple[str | None, str]:
    """The metric that tells the best child, and whether more of it is better: as asked for, else the likeliest."""
    asked = sweep.get("metric")
    if asked:
        return asked, sweep.get("goal") or goal_of(asked)
    done = [run for run in children if run.status is Status.COMPLETED]
    common = [name for name in done[0].metrics if all(number(run, name) is not None for run in done)] if done else []
    ranked = sorted(common, key=lambda name: (-_likely(name), name))
    if not ranked or (len(ranked) > 1 and not _likely(ranked[0])):
        return None, "max"
    return ranked[0], goal_of(ranked[0])


def _likely(name: str) -> int:
    """How likely it is that this metric is what a sweep is for."""
    low = name.lower()
    quality = 2 if MORE_IS_BETTER.search(low) else 1 if goal_of(low) == "min" else 0
    return quality + (3 if quality and _HELD_OUT.search(low) else 0)


def best(children: Sequence[Run], metric: str | None, goal: str) -> Run | None:
    done = [run for run in children if metric and run.status is Status.COMPLETED and number(run, metric) is not None]
    return min(done, key=lambda run: rank(run, metric, goal)) if done else None


def rank(run: Run, metric: str | None, goal: str) -> float:
    """Less is better; the end of the list is for those that have no such number, or did not get through."""
    value = number(run, metric) if metric and run.status is Status.COMPLETED else None
    return math.inf if value is None else -value if goal == "max" else value


def number(run: Run, name: str) -> float | None:
    value = run.metrics.get(name)
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf
    return float(value) if known else None  # type: ignore[arg-type]
