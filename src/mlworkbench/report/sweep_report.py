"""Compare the runs of a sweep: choose the metric that ranks them, and find the best run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from ..config.metric_goals import goals_of_runs
from ..history.nested_runs import DELETED
from ..metric_goal import MAX, MIN, find_goal, goal_from_name
from ..model import Run, Status

_HELD_OUT = re.compile(r"(^|[^a-z])(val|valid|validation|test|eval|dev)([^a-z]|$)")
_CONFIGURED = 9  # of metrics whose goal the project states


def ranking_metric(parent: Run, children: Sequence[Run]) -> tuple[str | None, str | None]:
    """Return the metric that ranks the children, the requested or the most likely one, and its goal if known."""
    sweep = parent.spec.sweep or {}
    metric, goal = sweep.get("metric"), sweep.get("goal")
    if metric and goal:
        return metric, goal
    defaults = goals_of_runs([parent])
    if metric:
        return metric, find_goal(metric, children, defaults)
    done = [run for run in children if run.status is Status.COMPLETED]
    common = [name for name in done[0].metrics if all(number(run, name) is not None for run in done)] if done else []
    ranked = sorted(common, key=lambda name: (-_likelihood(name, defaults), name))
    if not ranked or (len(ranked) > 1 and not _likelihood(ranked[0], defaults)):
        return None, None
    return ranked[0], find_goal(ranked[0], children, defaults)


def _likelihood(name: str, defaults: Mapping[str, str]) -> int:
    """Return a score for how likely it is that a sweep optimizes this metric."""
    if name in defaults:
        return _CONFIGURED
    quality = {MAX: 2, MIN: 1}.get(goal_from_name(name) or "", 0)
    return quality + (3 if quality and _HELD_OUT.search(name.lower()) else 0)


def best(children: Sequence[Run], metric: str | None, goal: str | None) -> Run | None:
    """Return the best completed run, or None if none has the metric or the goal is unknown."""
    if goal is None:
        return None
    done = [run for run in children if metric and _is_ranked(run) and number(run, metric) is not None]
    return min(done, key=lambda run: rank(run, metric, goal)) if done else None


def rank(run: Run, metric: str | None, goal: str | None) -> float:
    """Return a sort key. Lower is better; runs that failed, were deleted, or lack the metric come last.

    Without a goal, the key only separates them from the others.
    """
    value = number(run, metric) if metric and _is_ranked(run) else None
    return math.inf if value is None else {MAX: -value, MIN: value}.get(goal or "", 0.0)


def _is_ranked(run: Run) -> bool:
    return run.status is Status.COMPLETED and run.detail != DELETED


def number(run: Run, name: str) -> float | None:
    value = run.metrics.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf
    return float(value) if is_number else None  # type: ignore[arg-type]
